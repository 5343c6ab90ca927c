#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/methods/moe/instructions.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/graph/graph.h"

namespace dear::methods::moe {

// The instructions as steps on two lanes, in their order: step i is instruction order()[i].
struct Lowered {
  Graph graph;
  std::vector<double> seconds;  // by step
  LaneId compute = 0, network = 0;
};
Lowered lower(const InstructionGraph& graph);

// How long an iteration takes when each instruction takes its seconds, and begins when all that it waits for
// and the instruction before it on its lane have ended.
struct Times {
  double iteration_seconds = 0;
  double compute_seconds = 0;     // of the compute lane, at work
  double network_seconds = 0;     // of the network lane, at work
  double exposed_seconds = 0;     // the network at work while nothing is computed
  double all_to_all_seconds = 0;  // of network_seconds, and of exposed_seconds
  double exposed_all_to_all_seconds = 0;
  std::vector<conductor::StepSpan> spans;
};
// Of one iteration alone, from its first instruction to its last; or of the last of several, from the end of
// the iteration before on its compute lane. ConfigError for less than one.
Times play(const InstructionGraph& graph, std::int64_t iterations = 1);

// As any executor writes it, for a timeline. `network` says how it was modelled: see sim::describe().
Trace to_trace(const InstructionGraph& graph, const Times& times, const std::string& title,
               const std::string& network);

}  // namespace dear::methods::moe
