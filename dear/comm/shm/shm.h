#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/group/backend.h"

// Ranks of one host on shared memory. Buffers lie in segments that every rank maps, so a rank reads its
// peers' data where it is; nothing is staged. Segments are memfds, sized before first touch: they vanish with
// the last process that maps them, however it ends.
namespace dear::backends {

// A backend whose ranks read each other's buffers.
class SharedMemory : public Backend {
 public:
  // Where `rank`'s part of a buffer of this group lies.
  [[nodiscard]] virtual std::byte* part_of(const Buffer& buffer, int rank) const = 0;
  // Waits for all ranks to come with the same request, and does nothing of it: MismatchError where they
  // differ.
  virtual Timing meet_for(const Request& request, Deadline deadline) = 0;
};

struct ShmOptions {
  std::string rendezvous;  // names the job; the same on all its ranks and on no other job of this host
  int rank = 0;
  int size = 1;
  Deadline deadline;  // for all ranks to come
  // Called every millisecond or so by a rank that waits for its peers longer than a moment, on its thread,
  // for what has to go on meanwhile. What it throws is the rank's failure.
  std::function<void()> meanwhile{};
  // By rank, the number that messages call it by; empty: its own.
  std::vector<int> names{};
  [[nodiscard]] int name_of(int of) const { return names.empty() ? of : names[static_cast<std::size_t>(of)]; }
};

// Meets the peers (processes or threads). TimeoutError naming the ranks that did not come; MismatchError when
// ranks disagree on size or two claim one rank.
std::unique_ptr<SharedMemory> make_shm(const ShmOptions& options);

}  // namespace dear::backends
