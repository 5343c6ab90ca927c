#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/vocabulary/collective.h"
#include "dear/comm/group/group.h"
#include "dear/schedule/graph/graph.h"
#include "dear/tools/replay/replay.h"

namespace dear {

// A graph of any work whose collectives are real and whose other steps are timed.
struct GraphReplay {
  const Graph& graph;
  StepId commit = 0;  // the step whose ends Replayed::iteration_seconds tells
  // Tells how long a step of this rank takes. It is not asked of those that carry something.
  std::function<double(Instance)> seconds;
  // All-reduce, broadcast or reduce of so many elements in fp32.
  struct Carried {
    Collective collective = Collective::all_reduce;
    std::int64_t elements = 0;
    int root = 0;  // of a broadcast or a reduce
  };
  std::vector<std::optional<Carried>> carried;  // by step; collectives stand on one lane
  std::string name;                             // "spd-kfac"
  std::uint64_t digest = 0;                     // of what all ranks must replay alike
  std::function<std::string(StepId)> name_of;   // of a step, for messages
};

// This one works as replay() of a schedule does, but leaves Replayed::compute_seconds 0. MismatchError on
// every rank where digests or iterations differ.
Replayed replay(const GraphReplay& job, std::int64_t iterations, Group group);

}  // namespace dear
