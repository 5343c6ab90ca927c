#include "dear/schedule/schedule.h"

namespace dear {

std::vector<Edge> edges_with_lanes(const Schedule& schedule, FreeLanes free) {
  std::vector<Edge> edges = schedule.edges();
  for (const Lane& lane : schedule.lanes()) {
    if ((free.compute && lane.kind == LaneKind::compute) ||
        (free.network && lane.kind == LaneKind::network)) {
      for (const StepId step : lane.steps) edges.push_back({step, step, 1});
      continue;
    }
    for (std::size_t i = 0; i < lane.steps.size(); ++i) {
      const bool last = i + 1 == lane.steps.size();
      edges.push_back({lane.steps[i], lane.steps[last ? 0 : i + 1], last ? 1U : 0U});
    }
  }
  return edges;
}

}  // namespace dear
