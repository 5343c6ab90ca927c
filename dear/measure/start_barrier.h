#pragma once

#include <cstdint>

#include "dear/base/deadline.h"
#include "dear/base/file_descriptor.h"

namespace dear::measure {

// The barrier behind which repetitions begin. It belongs to no library, so that every library starts in the
// same way. It lies in memory that all ranks of the host map.
class StartBarrier {
 public:
  static FileDescriptor make_memory();  // TransportError

  StartBarrier(FileDescriptor memory, int ranks);  // TransportError
  ~StartBarrier();
  StartBarrier(const StartBarrier&) = delete;
  StartBarrier& operator=(const StartBarrier&) = delete;

  // Returns when all ranks have called it. TimeoutError at the deadline.
  void wait(Deadline deadline);

 private:
  struct State;
  State* state_ = nullptr;
  std::uint32_t ranks_;
};

}  // namespace dear::measure
