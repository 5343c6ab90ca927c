#pragma once

#include <string>
#include <vector>

#include "dear/base/vocabulary/deadline.h"

namespace dear::channels {

struct MeetingOptions {
  int rank = 0;
  int size = 1;
  // Rank 0 listens at this port of all its addresses; the others connect to it at the address (a name or
  // number of its host).
  std::string master_address{};
  int master_port = 0;
  // A text that all ranks of the job have and no other job has; "" where there is none. A rank of another job
  // is turned away.
  std::string job{};
  Deadline deadline;  // for all ranks to come
};

// A meeting of ranks on any hosts, over TCP, at which each gives every other a message: `messages[r]` goes to
// rank r, and element r of the result came from rank r (its own element is empty). Messages are at most 64
// KiB long. All ranks call it; it leaves nothing open.
//
// TimeoutError naming the ranks that did not come, on every rank that did; MismatchError where ranks disagree
// about their number or two have the same rank; TransportError where the port is taken, the address leads
// nowhere, something else answers there, or rank 0 ended; ConfigError for a rank, an address or a port that
// can be none.
std::vector<std::string> meet(const MeetingOptions& options, const std::vector<std::string>& messages);

// The address of this host on the way to the master: where other ranks find this one. Errors as above.
std::string own_address(const MeetingOptions& options);

// ConfigError, and what to do, where options cannot be used.
void check_meeting(const MeetingOptions& options);

}  // namespace dear::channels
