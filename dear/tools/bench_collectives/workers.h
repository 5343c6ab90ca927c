#pragma once

#include <string>
#include <vector>

#include "dear/tools/bench_collectives/protocol.h"

namespace dear::bench_collectives {

// The ranks of one library, wherever they run. After an error of any method only output() and the destructor
// may be called.
class Workers {
 public:
  virtual ~Workers() = default;

  // Returns when all ranks have met, with the library's description of itself.
  virtual std::string wait_ready() = 0;
  // The answers to a measurement or verification, one from each rank.
  virtual std::vector<Reply> ask(const Command& command) = 0;
  // Has all ranks end.
  virtual void end() = 0;
  // The end of what the ranks have written to their standard output and error up to now.
  virtual const std::string& output() = 0;
};

}  // namespace dear::bench_collectives
