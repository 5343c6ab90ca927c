#include "dear/schedule/graph/frontier.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear {

// Every step lies on a cycle with a single token (its lane, or its edge to itself where the lane is free), so
// no step ever runs in two iterations at once.
Frontier::Frontier(const Graph& graph, const Options& options)
    : iterations_(options.iterations),
      in_(graph.step_count()),
      out_(graph.step_count()),
      empty_inputs_(graph.step_count(), 0),
      empty_of_lane_(graph.step_count(), 0),
      started_(graph.step_count(), 0),
      done_(graph.step_count(), 0),
      unfinished_(options.iterations > 0 ? graph.step_count() : 0) {
  for (const Edge& edge : edges_with_lanes(graph, options.free)) {
    const auto index = static_cast<std::uint32_t>(edges_.size());
    const bool of_lane = index >= graph.edges().size();
    edges_.push_back({edge.to, of_lane, edge.back});
    out_[edge.from].push_back(index);
    in_[edge.to].push_back(index);
    if (edge.back > 0) continue;
    ++empty_inputs_[edge.to];
    if (of_lane) ++empty_of_lane_[edge.to];
  }
  for (StepId step = 0; step < graph.step_count(); ++step) {
    if (graph.rhythm_of(step).period == 1) continue;
    rhythms_.resize(graph.step_count());
    rhythms_[step] = graph.rhythm_of(step);
  }
}

std::vector<Instance> Frontier::start() {
  std::vector<Instance> released;
  for (StepId step = 0; step < started_.size(); ++step) release_if_enabled(step, released);
  pass_through_rests(released);
  return released;
}

std::vector<Instance> Frontier::complete(StepId step) {
  std::vector<Instance> released;
  complete(step, released);
  return released;
}

void Frontier::complete(StepId step, std::vector<Instance>& released) {
  if (step >= started_.size())
    throw ScheduleError(fmt::format("step {} cannot end: the schedule has {} steps", step, started_.size()));
  if (!running(step))
    throw ScheduleError(
        fmt::format("step {} cannot end: it is not running (it has ended {} of the {} times it was "
                    "released); report each end once, after the release",
                    step, done_[step], started_[step]));
  end(step, released);
  pass_through_rests(released);
}

void Frontier::end(StepId step, std::vector<Instance>& released) {
  if (++done_[step] == iterations_) --unfinished_;
  for (const std::uint32_t index : out_[step]) {
    MarkedEdge& edge = edges_[index];
    if (++edge.tokens != 1) continue;
    --empty_inputs_[edge.to];
    if (edge.of_lane) --empty_of_lane_[edge.to];
    release_if_enabled(edge.to, released);
  }
}

void Frontier::release_if_enabled(StepId step, std::vector<Instance>& released) {
  if (started_[step] == iterations_) return;
  const bool resting = rests(step);
  if ((resting ? empty_of_lane_ : empty_inputs_)[step] != 0) return;
  for (const std::uint32_t index : in_[step]) {
    MarkedEdge& edge = edges_[index];
    if (--edge.tokens != 0) continue;
    ++empty_inputs_[step];
    if (edge.of_lane) ++empty_of_lane_[step];
  }
  const Instance which{step, started_[step]++};
  if (resting) {
    resting_.push_back(step);
  } else {
    released.push_back(which);
  }
}

// A loop, because a chain of steps that rest may be as long as the graph.
void Frontier::pass_through_rests(std::vector<Instance>& released) {
  while (!resting_.empty()) {
    const StepId step = resting_.back();
    resting_.pop_back();
    end(step, released);
  }
}

}  // namespace dear
