#include "dear/schedule/conductor/runnable.h"

#include <variant>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::conductor {

// The conductor counts one reduction and one publication of each chunk of a bucket, both between one forward
// and the next. With two network lanes the order of collectives would differ between ranks.
void require_runnable(const Schedule& schedule) {
  int carrying = 0;
  for (LaneId lane = 0; lane < schedule.lanes().size(); ++lane)
    carrying += schedule.lanes()[lane].kind == LaneKind::network && !schedule.steps_of(lane).empty() ? 1 : 0;
  if (carrying > 1)
    throw ScheduleError(fmt::format(
        "policy {} can only be simulated, for a program carries all collectives on one network lane: "
        "choose one that trains",
        schedule.policy()));
  for (const Step& step : schedule.steps()) {
    const auto* work = std::get_if<Communicate>(&step.work);
    if (work != nullptr && (work->payload == Payload::buffers || work->payload == Payload::parameters_again ||
                            work->group != ProcessGroup::all))
      throw ScheduleError(
          fmt::format("policy {} can only be simulated, for a program cannot run its step \"{}\": choose one "
                      "that trains",
                      schedule.policy(), name_of(step.work)));
  }
  for (const Edge& edge : schedule.edges())
    if (edge.back > 0 && std::holds_alternative<Update>(schedule.steps()[edge.from].work) &&
        std::holds_alternative<Communicate>(schedule.steps()[edge.to].work))
      throw ScheduleError(
          fmt::format("policy {} can only be simulated, for a program cannot run its step \"{}\" in the "
                      "iteration after \"{}\": choose one that trains",
                      schedule.policy(), name_of(schedule.steps()[edge.to].work),
                      name_of(schedule.steps()[edge.from].work)));
}

}  // namespace dear::conductor
