#pragma once

#include <vector>

#include "dear/schedule/schedule.h"

namespace dear {

// The least iteration time any executor can reach: the largest mean weight of a cycle of the schedule, (sum
// of `seconds` over its steps) / (iterations it crosses), lane order included. For fixed step times it is the
// exact rate of the marked graph in steady state (Ramamoorthy and Ho 1980, doi:10.1109/TSE.1980.230492).
struct CriticalCycle {
  double seconds = 0;         // per iteration
  std::vector<StepId> steps;  // of one cycle that attains it, in order
};
CriticalCycle critical_cycle(const Schedule& schedule, const std::vector<double>& seconds);

}  // namespace dear
