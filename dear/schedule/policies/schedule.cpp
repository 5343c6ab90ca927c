#include "dear/schedule/policies/schedule.h"

namespace dear {

std::vector<StepId> Schedule::steps_on(LaneKind kind) const {
  std::vector<StepId> steps;
  for (LaneId lane = 0; lane < lanes_.size(); ++lane)
    if (lanes_[lane].kind == kind) steps.insert(steps.end(), steps_of(lane).begin(), steps_of(lane).end());
  return steps;
}

FreeLaneSet free_lanes(const Schedule& schedule, FreeLanes free) {
  FreeLaneSet set;
  for (const Lane& lane : schedule.lanes())
    set.push_back((free.compute && lane.kind == LaneKind::compute) ||
                  (free.network && lane.kind == LaneKind::network));
  return set;
}

std::vector<Edge> edges_with_lanes(const Schedule& schedule, FreeLanes free) {
  return edges_with_lanes(schedule.graph(), free_lanes(schedule, free));
}

}  // namespace dear
