#pragma once

#include <cstdint>
#include <memory>

#include "dear/base/os/file_descriptor.h"
#include "dear/base/os/segment.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::bench_collectives {

// The barrier behind which repetitions begin. It belongs to no library, so that every library starts in the
// same way. It lies in memory that all ranks of the host map.
class StartBarrier {
 public:
  // The memory of a barrier, whose file the ranks get. TransportError.
  static std::shared_ptr<os::Segment> make_memory();

  StartBarrier(os::FileDescriptor memory, int ranks);  // TransportError

  // Returns when all ranks have called it. TimeoutError at the deadline.
  void wait(Deadline deadline);

 private:
  struct State;
  std::shared_ptr<os::Segment> memory_;
  State& state_;
  std::uint32_t ranks_;
};

}  // namespace dear::bench_collectives
