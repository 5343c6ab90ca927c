#pragma once

#include <string>
#include <vector>

#include "dear/measure/protocol.h"

namespace dear::measure {

// The ranks of one contestant, wherever they run. After an error of any method a team is good for nothing but
// output() and its end.
class Team {
 public:
  virtual ~Team() = default;

  // Returns when all ranks have met, with the engine's description of itself.
  virtual std::string wait_ready() = 0;
  // The answers to a measurement or verification, one from each rank.
  virtual std::vector<Reply> ask(const Command& command) = 0;
  // Lets the ranks end.
  virtual void dismiss() = 0;
  // The end of what the ranks have written to their standard output and error up to now.
  virtual const std::string& output() = 0;
};

}  // namespace dear::measure
