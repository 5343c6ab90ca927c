#include "dear/methods/pipeline/timeline.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/platform/fabric/flows.h"

namespace dear::methods::pipeline {
namespace {

using conductor::StepSpan;

double seconds_of(TaskKind kind, const StageSeconds& stage) {
  switch (kind) {
    case TaskKind::forward:
      return stage.forward;
    case TaskKind::backward:
      return stage.backward();
    case TaskKind::input_gradient:
      return stage.input_gradient;
    case TaskKind::weight_gradient:
      break;
  }
  return stage.weight_gradient;
}

void require_times(const PipelineTimes& times) {
  const auto stages = static_cast<std::size_t>(times.shape.stages());
  if (times.stages.size() != stages || times.activations.size() != stages - 1 ||
      times.gradients.size() != stages - 1)
    throw ConfigError(fmt::format(
        "a pipeline of {} stages has times of {} and of {} and {} messages: give one a stage and cut", stages,
        times.stages.size(), times.activations.size(), times.gradients.size()));
  const auto require = [](double seconds, std::string_view what) {
    if (!(seconds >= 0) || !std::isfinite(seconds))
      throw ConfigError(
          fmt::format("{} of a pipeline takes {} s, which is no time: measure it", what, seconds));
  };
  for (const StageSeconds& stage : times.stages) {
    require(stage.forward, "the forward of a stage");
    require(stage.input_gradient, "the input gradient of a stage");
    require(stage.weight_gradient, "the weight gradient of a stage");
  }
  for (const auto* transfers : {&times.activations, &times.gradients})
    for (const Transfer& transfer : *transfers) {
      require(transfer.busy_seconds, "a message");
      require(transfer.latency_seconds, "the latency of a message");
    }
}

class Lowering {
 public:
  explicit Lowering(const PipelineTimes& times) : times_(times) {}

  Lowered make() {
    const std::vector<std::vector<Task>> orders = pipeline::orders(times_.shape);
    for (std::size_t place = 0; place < orders.size(); ++place) lowered_.graph.add_lane();
    for (std::size_t place = 0; place < orders.size(); ++place)
      for (const Task& task : orders[place]) add_task(task, static_cast<LaneId>(place));
    for (const auto& [key, step] : computed_) {
      const auto [stage, kind, m] = key;
      if (kind == TaskKind::forward) {
        if (stage > 0) wait(step, arrived_.at({stage - 1, TaskKind::forward, m}));
        continue;
      }
      const TaskKind before =
          kind == TaskKind::weight_gradient ? TaskKind::input_gradient : TaskKind::forward;
      wait(step, computed_.at({stage, before, m}));
      if (kind != TaskKind::weight_gradient && stage + 1 < times_.shape.stages())
        wait(step, arrived_.at({stage + 1, kind, m}));
    }
    for (const Exchange& exchange : times_.exchanges) {
      send_when_whole(exchange.stages[0], exchange.stages[1], exchange.there);
      send_when_whole(exchange.stages[1], exchange.stages[0], exchange.back);
    }
    const std::string flaw = flaw_of(lowered_.graph, [&](StepId step) { return describe(step); });
    if (!flaw.empty()) throw ScheduleError("a pipeline cannot run, for " + flaw);
    lowered_.shared_wires = times_.shared_wires;
    return std::move(lowered_);
  }

 private:
  using Key = std::tuple<int, TaskKind, int>;  // stage, kind, micro-batch

  void wait(StepId step, StepId before) { lowered_.graph.add_edge({before, step}); }
  StepId add(LaneId lane, Lowered::Work work, double seconds) {
    lowered_.work.push_back(std::move(work));
    lowered_.seconds.push_back(seconds);
    return lowered_.graph.add_step(lane);
  }

  void add_task(const Task& task, LaneId lane) {
    const int stage = task.stage, last = times_.shape.stages() - 1;
    const StepId step = add(lane, {.task = task}, seconds_of(task.kind, times_.stages[index_of(stage)]));
    const Key key{stage, task.kind, task.micro_batch};
    computed_[key] = step;
    arrived_[key] = step;
    if (task.kind == TaskKind::forward && stage < last)
      arrived_[key] = send(task, step, stage + 1, times_.activations[index_of(stage)]);
    if ((task.kind == TaskKind::backward || task.kind == TaskKind::input_gradient) && stage > 0)
      arrived_[key] = send(task, step, stage - 1, times_.gradients[index_of(stage - 1)]);
    if (releases(task.kind)) last_of_[stage] = {task, step};
  }

  // Returns the step that ends when it is there.
  StepId send(const Task& task, StepId made, int to_stage, const Transfer& transfer) {
    const int from = times_.shape.place_of(task.stage), to = times_.shape.place_of(to_stage);
    if (from == to) return made;
    const auto [lane, is_new] = links_.try_emplace({from, to}, 0);
    if (is_new) lane->second = lowered_.graph.add_lane();
    const StepId sent =
        add(lane->second, {.task = task, .message = {{.from = from, .to = to, .bytes = transfer.bytes}}},
            transfer.busy_seconds);
    wait(sent, made);
    if (transfer.latency_seconds == 0) return sent;
    const StepId there = add(lowered_.graph.add_lane(),
                             {.task = task, .message = {{.from = from, .to = to, .is_latency = true}}},
                             transfer.latency_seconds);
    wait(there, sent);
    return there;
  }

  void send_when_whole(int from, int to, const Transfer& transfer) {
    const auto& [task, step] = last_of_.at(from);
    (void)send(task, step, to, transfer);
  }

  [[nodiscard]] std::string describe(StepId step) const {
    const Task& task = lowered_.work[step].task;
    return fmt::format("{} {} of micro-batch {} in stage {}",
                       lowered_.work[step].message ? "the message of" : "the", name_of(task.kind),
                       task.micro_batch, task.stage);
  }

  const PipelineTimes& times_;
  Lowered lowered_;
  std::map<Key, StepId> computed_, arrived_;
  std::map<std::pair<int, int>, LaneId> links_;
  std::map<int, std::pair<Task, StepId>> last_of_;  // by stage: its last gradient
};

// The clock of a pipeline whose links share wires: a message flows over its own link and the wires of it, at
// the rates that fabric::Flows has; all else takes its seconds.
class WireClock final : public conductor::Completions {
 public:
  explicit WireClock(const Lowered& lowered) : lowered_(lowered), flows_(capacities_of(lowered, links_)) {}

  void start(Instance which) {
    const auto& message = lowered_.work[which.step].message;
    if (!message || message->is_latency || message->bytes <= 0) {
      ends_.emplace(now_ + lowered_.seconds[which.step], which);
      return;
    }
    const fabric::FlowId flow = flows_.start(links_.at({message->from, message->to}), message->bytes);
    flowing_.insert_or_assign(flow, which);
  }
  conductor::Completion next() override {
    if (ended_.empty()) {
      const std::optional<double> flows_end = flows_.next_seconds();
      const double other_end = ends_.empty() ? HUGE_VAL : ends_.begin()->first;
      if (!flows_end && ends_.empty()) throw Error("nothing is running that could end: please report this");
      if (!flows_end || other_end < *flows_end) {
        now_ = other_end;
        const Instance which = ends_.begin()->second;
        ends_.erase(ends_.begin());
        ended_.push_back(which);
      } else {
        now_ = *flows_end;
      }
      for (const fabric::FlowId flow : flows_.advance(now_)) ended_.push_back(flowing_.at(flow));
    }
    const Instance which = ended_.front();
    ended_.pop_front();
    return {which, now_};
  }
  [[nodiscard]] double now_seconds() override { return now_; }

 private:
  using Pair = std::pair<int, int>;
  using Links = std::map<Pair, std::vector<fabric::LinkId>>;

  // First the links of pairs that send something, then the wires.
  static std::vector<double> capacities_of(const Lowered& lowered, Links& links) {
    std::vector<double> capacities;
    for (std::size_t step = 0; step < lowered.work.size(); ++step) {
      const auto& message = lowered.work[step].message;
      if (!message || message->is_latency || message->bytes <= 0) continue;
      const auto [found, is_new] = links.try_emplace({message->from, message->to});
      if (!is_new) continue;
      found->second.push_back(static_cast<fabric::LinkId>(capacities.size()));
      const double seconds = lowered.seconds[step];
      capacities.push_back(seconds > 0 ? message->bytes / seconds : HUGE_VAL);
    }
    for (const SharedWire& wire : lowered.shared_wires) {
      for (const Pair& pair : wire.links)
        if (const auto found = links.find(pair); found != links.end())
          found->second.push_back(static_cast<fabric::LinkId>(capacities.size()));
      capacities.push_back(wire.bytes_per_second);
    }
    return capacities;
  }

  const Lowered& lowered_;
  Links links_;
  fabric::Flows flows_;
  std::map<fabric::FlowId, Instance> flowing_;
  std::multimap<double, Instance> ends_;
  std::deque<Instance> ended_;  // at this instant, and not yet told
  double now_ = 0;
};

std::vector<StepSpan> spans_of(const Lowered& lowered) {
  if (lowered.shared_wires.empty()) return conductor::drive(lowered.graph, 1, lowered.seconds);
  WireClock clock(lowered);
  return conductor::drive(
      lowered.graph, 1, [&](Instance which) { clock.start(which); }, clock,
      [](StepId step) { return fmt::format("step {}", step); });
}

}  // namespace

Lowered lower(const PipelineTimes& times) {
  check(times.shape);
  require_times(times);
  return Lowering(times).make();
}

Played play(const Lowered& lowered, int places) {
  Played played;
  played.spans = spans_of(lowered);
  std::vector<StepSpan> span_of(lowered.graph.step_count());
  for (const StepSpan& span : played.spans) {
    span_of[span.which.step] = span;
    played.iteration_seconds = std::max(played.iteration_seconds, span.end_seconds);
  }
  std::vector<std::vector<StepId>> before(lowered.graph.step_count());
  for (const Edge& edge : lowered.graph.edges()) before[edge.to].push_back(edge.from);

  for (int place = 0; place < places; ++place) {
    Played::Place& now = played.places.emplace_back();
    now.waits_for.resize(index_of(places));
    double free_from = 0;
    for (const StepId step : lowered.graph.steps_of(static_cast<LaneId>(place))) {
      const StepSpan& span = span_of[step];
      now.busy_seconds += span.end_seconds - span.begin_seconds;
      const double waited = span.begin_seconds - free_from;
      // The last to come is a message, for the place's own results were there when it was free.
      for (const StepId cause : before[step]) {
        const auto& message = lowered.work[cause].message;
        if (waited <= 0 || !message) continue;
        // A latency begins when its message has left the link.
        const double set_out =
            message->is_latency ? span_of[before[cause].front()].begin_seconds : span_of[cause].begin_seconds;
        Wait& wait = now.waits_for[index_of(message->from)];
        wait.seconds += waited;
        wait.on_link_seconds += span.begin_seconds - std::max(free_from, set_out);
      }
      free_from = span.end_seconds;
    }
    now.bubble_seconds = played.iteration_seconds - now.busy_seconds;
  }
  return played;
}

Played play(const PipelineTimes& times) { return play(lower(times), times.shape.places); }

Trace to_trace(const Lowered& lowered, const Played& played, const std::string& title,
               const std::string& network) {
  Trace trace{.title = title, .network = network, .spans = {}};
  for (const StepSpan& span : played.spans) {
    const auto& [task, message] = lowered.work[span.which.step];
    if (message && message->is_latency) continue;
    const std::string name =
        fmt::format("{} of stage {}, micro-batch {}", name_of(task.kind), task.stage, task.micro_batch);
    const int rank = message ? message->from : static_cast<int>(lowered.graph.lane_of(span.which.step));
    trace.spans.push_back({.rank = rank,
                           .lane = message ? fmt::format("network to {}", message->to) : "compute",
                           .name = message ? "send " + name : name,
                           .activity = message                          ? Activity::communication
                                       : task.kind == TaskKind::forward ? Activity::forward
                                                                        : Activity::backward,
                           .iteration = span.which.iteration,
                           .step = span.which.step,
                           .begin_seconds = span.begin_seconds,
                           .end_seconds = span.end_seconds});
  }
  return trace;
}

std::vector<int> planned_warm_up(const PipelineTimes& times, const std::vector<int>& most) {
  const PipelineShape& shape = times.shape;
  if (!plans_warm_up(shape.schedule)) return {};
  double period = 0;
  for (const StageSeconds& stage : times.stages) period = std::max(period, stage.all());
  for (const auto* transfers : {&times.activations, &times.gradients})
    for (const Transfer& transfer : *transfers) period = std::max(period, transfer.busy_seconds);
  std::vector<int> warm_up(times.stages.size(), 1);
  for (std::size_t stage = warm_up.size() - 1; stage-- > 0;) {
    const double local =
        times.stages[stage].all() + times.activations[stage].seconds() + times.gradients[stage].seconds();
    constexpr double kRounding = 1e-9;  // of sums that divide without rest
    const double more = period > 0 ? std::max(1.0, std::ceil(local / period - kRounding)) : 1;
    warm_up[stage] = static_cast<int>(std::min<double>(warm_up[stage + 1] + more, shape.micro_batches));
  }
  for (std::size_t stage = 0; stage < warm_up.size(); ++stage) {
    warm_up[stage] = std::max(1, std::min(warm_up[stage], most.at(stage)));
    if (stage == 0) continue;
    const int before = warm_up[stage - 1];
    warm_up[stage] =
        std::min(warm_up[stage], before == shape.micro_batches ? before : std::max(1, before - 1));
  }
  return warm_up;
}

}  // namespace dear::methods::pipeline
