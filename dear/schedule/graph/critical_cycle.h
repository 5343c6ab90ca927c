#pragma once

#include <vector>

#include "dear/schedule/graph/graph.h"

namespace dear {

// The least iteration time any executor can reach: the largest mean weight of a cycle of the graph, (sum of
// `seconds` over its steps) / (iterations it crosses), lane order included. For fixed step times it is the
// exact rate of the marked graph in steady state (Ramamoorthy and Ho 1980, doi:10.1109/TSE.1980.230492).
struct CriticalCycle {
  double seconds = 0;  // per iteration
  // The steps of one cycle that attains it, in order. Where steps rest, the cycle goes through the iterations
  // after which all rhythms repeat, and names a step once for each iteration in which it meets it.
  std::vector<StepId> steps;
};
// `seconds` by step. ScheduleError for another number of them, and for rhythms that repeat only after more
// instances of steps than memory should hold.
CriticalCycle critical_cycle(const Graph& graph, const std::vector<double>& seconds);

}  // namespace dear
