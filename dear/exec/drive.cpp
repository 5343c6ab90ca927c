#include "dear/exec/drive.h"

#include <fmt/format.h>

#include "dear/base/error.h"

namespace dear::exec {
namespace {

LaneExecutor& executor_of(LaneKind kind, const LaneExecutors& executors) {
  switch (kind) {
    case LaneKind::compute:
      return executors.compute;
    case LaneKind::update:
    case LaneKind::codec:
      return executors.beside;
    case LaneKind::network:
      break;
  }
  return executors.network;
}

}  // namespace

std::vector<StepSpan> drive(const Schedule& schedule, std::int64_t iterations, LaneExecutors executors,
                            Completions& completions) {
  Frontier frontier(schedule, {.iterations = iterations});
  const std::vector<Step>& steps = schedule.steps();
  std::vector<double> begin_seconds(steps.size());  // of the one iteration that a step may be running
  std::vector<StepSpan> spans;

  std::vector<Instance> released = frontier.start();
  for (;;) {
    for (const Instance& which : released) {
      const Step& step = steps[which.step];
      begin_seconds[which.step] = completions.now_seconds();
      executor_of(schedule.lanes()[step.lane].kind, executors).start(which, step);
    }
    if (frontier.finished()) return spans;
    const Completion completion = completions.next();
    const auto [step, iteration] = completion.which;
    if (step < steps.size() && iteration != frontier.done(step))
      throw ScheduleError(fmt::format("{} ended in iteration {}, but iteration {} is the one to end next",
                                      name_of(steps[step].work), iteration, frontier.done(step)));
    released.clear();
    frontier.complete(step, released);
    spans.push_back({completion.which, begin_seconds[step], completion.at_seconds});
  }
}

}  // namespace dear::exec
