#pragma once

#include <cstdint>

#include "dear/base/deadline.h"
#include "dear/base/file_descriptor.h"

namespace dear::measure {

// A barrier among the ranks of one contestant that belongs to no contestant: whatever carries the
// collectives, repetitions begin in the same way. Lies in memory that all ranks of the host map.
class StartingGate {
 public:
  static FileDescriptor make_memory();  // TransportError

  StartingGate(FileDescriptor memory, int ranks);  // TransportError
  ~StartingGate();
  StartingGate(const StartingGate&) = delete;
  StartingGate& operator=(const StartingGate&) = delete;

  // Returns when all ranks have come. TimeoutError at the deadline.
  void wait(Deadline deadline);

 private:
  struct Words;
  Words* words_ = nullptr;
  std::uint32_t ranks_;
};

}  // namespace dear::measure
