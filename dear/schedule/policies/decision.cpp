#include "dear/schedule/policies/decision.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "dear/schedule/policies/builder.h"
#include "dear/schedule/policies/refusal.h"

namespace dear {

Schedule with_decision(const Schedule& schedule, const Workload& workload, const Grouping& grouping) {
  const std::vector<Step>& steps = schedule.steps();
  const auto first = std::find_if(steps.begin(), steps.end(), [](const Step& step) {
    const auto* work = std::get_if<Communicate>(&step.work);
    return work != nullptr && (work->payload == Payload::gradients || work->payload == Payload::encoded);
  });
  if (first == steps.end()) schedule::refuse(schedule, "no reduction that a decision could travel before");
  const auto decision = static_cast<StepId>(first - steps.begin());
  const auto moved = [&](StepId step) { return step < decision ? step : step + 1; };

  ScheduleBuilder builder(workload, grouping, schedule.policy());
  for (const Lane& lane : schedule.lanes()) builder.lane(lane.name, lane.kind);
  for (StepId step = 0; step < steps.size(); ++step) {
    if (step == decision) builder.add(Communicate{Collective::broadcast, Payload::decision}, first->lane);
    builder.add(steps[step].work, steps[step].lane);
  }
  for (const Edge& edge : schedule.edges()) {
    builder.edge(moved(edge.from), moved(edge.to), edge.back);
    if (edge.to == decision) builder.edge(moved(edge.from), decision, edge.back);
  }
  builder.edge(moved(schedule.commit()), decision, 1);
  for (LayerId layer = 0; layer < schedule.layer_count(); ++layer)
    builder.edge(decision, moved(schedule.forward_of(layer)), 1);
  return std::move(builder).build();
}

}  // namespace dear
