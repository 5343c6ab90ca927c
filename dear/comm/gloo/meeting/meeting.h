#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dear/base/admission/wires.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"

namespace dear::channels {

struct MeetingOptions {
  int rank = 0;
  int size = 1;
  // Rank 0 listens at this port of the address (a name or number of its host), of all addresses only where
  // the name leads to none of its own; the others connect to it there.
  std::string master_address{};
  int master_port = 0;
  // A text that all ranks of the job have and no other job has; "" where there is none. A rank of another job
  // is turned away, as is who does not have the secret, "" for none.
  std::string job{};
  std::string secret{};
  Deadline deadline;  // for all ranks to come
};

// Ranks that have met, and connect to each other. Each still has its connection to rank 0, which so sees who
// ends meanwhile, and tells all the same. One without a settle() has failed, as the others see it.
class Meeting : public admission::Monitor {
 public:
  // By rank; the rank's own is empty.
  [[nodiscard]] const std::vector<std::string>& messages() const { return received_; }

  // This rank has its connections. Rank 0 waits until all have. Errors as those of check().
  virtual void settle() = 0;
  // Called where `error` is handled: tells the others of it, and throws what all are told.
  [[noreturn]] virtual void fail(const Error& error) = 0;

 protected:
  std::vector<std::string> received_;
};

// A meeting of ranks on any hosts, over TCP, at which each gives every other a message: `messages[r]` goes to
// rank r, and element r of what is received came from rank r (its own element is empty). Messages are at most
// 64 KiB long. All ranks call it. Each proves to rank 0, and rank 0 to each, that it has the job and the
// secret (handshake.h); strangers are turned away. Nothing listens afterwards.
//
// TimeoutError naming the ranks that did not come, on every rank that did; MismatchError where ranks disagree
// about their number or two have the same rank: on all ranks, but where there is neither a job nor a secret,
// and so anybody may say so, on that rank alone; TransportError where the port is taken, the address leads
// nowhere, something else answers there, or a rank ended; ConfigError for a rank, an address or a port that
// can be none.
std::unique_ptr<Meeting> open_meeting(const MeetingOptions& options,
                                      const std::vector<std::string>& messages);

// A meeting that ends at once. Gives the messages, and leaves nothing open.
std::vector<std::string> meet(const MeetingOptions& options, const std::vector<std::string>& messages);

// As long as one lives in this process, no other process of this host is rank 0 at this place with the same
// job and secret: MismatchError there. Without it two jobs that nothing tells apart may exchange their ranks.
// A name of the kernel is held, and nothing listens.
std::shared_ptr<const void> hold_place(const MeetingOptions& options);

// The address of this host on the way to the master: where other ranks find this one. Errors as above.
std::string own_address(const MeetingOptions& options);

// ConfigError, and what to do, where options cannot be used.
void check_meeting(const MeetingOptions& options);

}  // namespace dear::channels
