#include "dear/schedule/conductor/drive.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::conductor {
namespace {

LaneExecutor& executor_of(LaneKind kind, const LaneExecutors& executors) {
  switch (kind) {
    case LaneKind::compute:
      return executors.compute;
    case LaneKind::update:
    case LaneKind::codec:
      return executors.update;
    case LaneKind::network:
      break;
  }
  return executors.network;
}

}  // namespace

std::vector<StepSpan> drive(const Graph& graph, std::int64_t iterations,
                            const std::function<void(Instance)>& start, Completions& completions,
                            const std::function<std::string(StepId)>& name) {
  Frontier frontier(graph, {.free = {}, .iterations = iterations});
  std::vector<double> begin_seconds(graph.step_count());  // of the one iteration that a step may be running
  std::vector<StepSpan> spans;

  std::vector<Instance> released = frontier.start();
  for (;;) {
    for (const Instance& which : released) {
      begin_seconds[which.step] = completions.now_seconds();
      start(which);
    }
    if (frontier.finished()) return spans;
    const Completion completion = completions.next();
    const auto [step, iteration] = completion.which;
    if (step < graph.step_count() && iteration != frontier.done(step))
      throw ScheduleError(fmt::format("{} ended in iteration {}, but iteration {} is the one to end next",
                                      name(step), iteration, frontier.done(step)));
    released.clear();
    frontier.complete(step, released);
    spans.push_back({completion.which, begin_seconds[step], completion.at_seconds});
  }
}

std::vector<StepSpan> drive(const Schedule& schedule, std::int64_t iterations, LaneExecutors executors,
                            Completions& completions) {
  const std::vector<Step>& steps = schedule.steps();
  return drive(
      schedule.graph(), iterations,
      [&](Instance which) {
        const Step& step = steps[which.step];
        executor_of(schedule.lanes()[step.lane].kind, executors).start(which, step);
      },
      completions, [&](StepId step) { return name_of(steps[step].work); });
}

}  // namespace dear::conductor
