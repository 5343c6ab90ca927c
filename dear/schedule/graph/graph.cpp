#include "dear/schedule/graph/graph.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/graph/precedence.h"

namespace dear {

LaneId Graph::add_lane() {
  lanes_.emplace_back();
  return static_cast<LaneId>(lanes_.size() - 1);
}

StepId Graph::add_step(LaneId lane, Rhythm rhythm) {
  if (lane >= lanes_.size())
    throw ScheduleError(
        fmt::format("a step is to stand on lane {}, which does not exist: make the lane first (there are {})",
                    lane, lanes_.size()));
  if (rhythm.period == 0 || rhythm.first >= rhythm.period)
    throw ScheduleError(
        fmt::format("a step is to run in every {}th iteration from {} on, which is none: give "
                    "a period of at least 1, and a first iteration below it",
                    rhythm.period, rhythm.first));
  const auto step = static_cast<StepId>(steps_.size());
  steps_.push_back({lane, rhythm});
  lanes_[lane].push_back(step);
  return step;
}

std::vector<Edge> edges_with_lanes(const Graph& graph, const FreeLaneSet& free) {
  std::vector<Edge> edges = graph.edges();
  edges.reserve(edges.size() + graph.step_count());
  for (LaneId lane = 0; lane < graph.lane_count(); ++lane) {
    const std::vector<StepId>& steps = graph.steps_of(lane);
    if (lane < free.size() && free[lane]) {
      for (const StepId step : steps) edges.push_back({step, step, 1});
      continue;
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool last = i + 1 == steps.size();
      edges.push_back({steps[i], steps[last ? 0 : i + 1], last ? 1U : 0U});
    }
  }
  return edges;
}

std::string flaw_of(const Graph& graph, const std::function<std::string(StepId)>& name) {
  for (const Edge& edge : graph.edges()) {
    if (std::max(edge.from, edge.to) >= graph.step_count())
      return fmt::format("the edge from step {} to step {} names a step that does not exist: there are {}",
                         edge.from, edge.to, graph.step_count());
    if (edge.from == edge.to && edge.back == 0)
      return fmt::format("{} waits for itself: remove the edge", name(edge.to));
  }
  const std::vector<StepId> cycle =
      graph::Precedence(graph.step_count(), edges_with_lanes(graph)).cycle_within_iteration();
  if (cycle.empty()) return "";
  std::string names;
  for (const StepId step : cycle) names += name(step) + " -> ";
  return fmt::format(
      "no step of the cycle {}{} could ever start: turn one of its edges round or let it cross an iteration",
      names, name(cycle.front()));
}

}  // namespace dear
