#pragma once

#include <cstdint>
#include <vector>

#include "dear/base/os/cache_line.h"
#include "dear/comm/group/request.h"
#include "dear/comm/message_programs/heading.h"
#include "dear/comm/mpi/channels/mpi.h"

namespace dear::backends {

// Collectives on vectors so small that the number of messages is all that counts: one to each rank and one
// from each, with the heading and the data together, and sums in the order of ranks.
class SmallCollectives {
 public:
  explicit SmallCollectives(channels::Mpi& mpi);

  [[nodiscard]] bool can(const Request& request) const;
  // Runs a small collective. `sequence` counts these collectives, and is the same on all ranks.
  void run(const Request& request, std::uint64_t sequence, const channels::Channels::Describe& what,
           Deadline deadline);

  // Compares what the ranks ask for, of any size, and moves no data. Throws what a collective would; serves
  // as many ranks as run().
  [[nodiscard]] bool can_compare() const;
  void compare(const Request& request, std::uint64_t sequence, const channels::Channels::Describe& what,
               Deadline deadline);

 private:
  // Puts `mine` ahead of the data of each message, sends them, and compares those that come.
  void exchange(const comm::Heading& mine, const channels::Channels::Describe& what, Deadline deadline);
  template <typename Written>
  void exchange_behind(const Written& heading, const comm::Heading& mine,
                       const channels::Channels::Describe& what, Deadline deadline);
  // The memory for what goes to a peer, and for what comes from it.
  [[nodiscard]] std::byte* out(int peer) { return first_ + 2 * peer * room_; }
  [[nodiscard]] std::byte* in(int peer) { return out(peer) + room_; }

  channels::Mpi& mpi_;
  int rank_;
  int size_;
  std::int64_t room_ = 0;  // for a message
  struct alignas(os::kCacheLineBytes) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory_;
  std::byte* first_ = nullptr;                    // of it, behind the place of a heading
  std::vector<channels::EagerMessage> messages_;  // one for each peer, a heading and data
  std::vector<const std::byte*> sources_;
};

}  // namespace dear::backends
