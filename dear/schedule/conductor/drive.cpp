#include "dear/schedule/conductor/drive.h"

#include <map>

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

class VirtualClock final : public Completions {
 public:
  void add(double seconds, Instance which) { ends_.emplace(now_ + seconds, which); }
  Completion next() override {
    if (ends_.empty()) throw Error("nothing is running that could end: please report this");
    const auto [at, which] = *ends_.begin();
    ends_.erase(ends_.begin());
    now_ = at;
    return {which, now_};
  }
  [[nodiscard]] double now_seconds() override { return now_; }

 private:
  std::multimap<double, Instance> ends_;
  double now_ = 0;
};

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

std::vector<StepSpan> drive(const Graph& graph, std::int64_t iterations,
                            const std::vector<double>& seconds_of_step) {
  VirtualClock clock;
  return drive(
      graph, iterations, [&](Instance which) { clock.add(seconds_of_step[which.step], which); }, clock,
      [](StepId step) { return fmt::format("step {}", step); });
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
