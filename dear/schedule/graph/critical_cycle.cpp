#include "dear/schedule/graph/critical_cycle.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/graph/precedence.h"

namespace dear {
namespace {

// Cycle improvement: as long as some cycle has a larger mean than the rate R found so far, R becomes the mean
// of that cycle. Such a cycle has a positive sum of the weights seconds - R * back, which Bellman-Ford finds
// for longest paths. If edges are relaxed in the order of the iteration, one pass settles all paths that
// cross no iteration, so few passes are needed.
class CycleFinder {
 public:
  CycleFinder(std::vector<Edge> edges, const std::vector<double>& seconds)
      : seconds_(seconds), edges_(std::move(edges)) {
    std::vector<std::size_t> position(seconds.size());
    const std::vector<StepId> order = graph::Precedence(seconds.size(), edges_).order_within_iteration();
    for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
    std::stable_sort(edges_.begin(), edges_.end(),
                     [&](const Edge& a, const Edge& b) { return position[a.from] < position[b.from]; });
    // Smaller gains are rounding.
    threshold_ = 1e-13 * std::accumulate(seconds.begin(), seconds.end(), 0.0);
  }

  std::optional<CriticalCycle> better_than(double rate) const {
    std::vector<double> longest(seconds_.size(), 0);
    std::vector<const Edge*> last_edge(seconds_.size(), nullptr);
    for (bool changed = true; changed;) {
      changed = false;
      for (const Edge& edge : edges_) {
        const double length = longest[edge.from] + seconds_[edge.from] - rate * edge.back;
        if (length <= longest[edge.to] + threshold_) continue;
        longest[edge.to] = length;
        last_edge[edge.to] = &edge;
        changed = true;
      }
      if (changed)
        if (std::optional<CriticalCycle> found = cycle_of(last_edge)) return found;
    }
    return std::nullopt;
  }

 private:
  std::optional<CriticalCycle> cycle_of(const std::vector<const Edge*>& last_edge) const {
    constexpr std::size_t kUnseen = SIZE_MAX;
    std::vector<std::size_t> seen_from(last_edge.size(), kUnseen);
    for (std::size_t root = 0; root < last_edge.size(); ++root) {
      auto at = static_cast<StepId>(root);
      while (seen_from[at] == kUnseen && last_edge[at] != nullptr) {
        seen_from[at] = root;
        at = last_edge[at]->from;
      }
      if (seen_from[at] == root && last_edge[at] != nullptr) return cycle_through(at, last_edge);
    }
    return std::nullopt;
  }

  CriticalCycle cycle_through(StepId step, const std::vector<const Edge*>& last_edge) const {
    CriticalCycle cycle;
    std::uint64_t crossed = 0;
    StepId at = step;
    do {
      cycle.steps.push_back(at);
      cycle.seconds += seconds_[at];
      crossed += last_edge[at]->back;
      at = last_edge[at]->from;
    } while (at != step);
    cycle.seconds /= static_cast<double>(crossed);  // not 0: no cycle lies within an iteration
    std::reverse(cycle.steps.begin(), cycle.steps.end());
    return cycle;
  }

  const std::vector<double>& seconds_;
  std::vector<Edge> edges_;
  double threshold_;
};

// A graph in which no step rests.
CriticalCycle cycle_of(const Graph& graph, const std::vector<double>& seconds) {
  CriticalCycle best;
  for (LaneId lane = 0; lane < graph.lane_count(); ++lane) {
    const std::vector<StepId>& steps = graph.steps_of(lane);
    double busy = 0;
    for (const StepId step : steps) busy += seconds[step];
    if (best.steps.empty() || busy > best.seconds) best = {busy, steps};
  }
  const CycleFinder finder(edges_with_lanes(graph), seconds);
  while (std::optional<CriticalCycle> better = finder.better_than(best.seconds)) {
    if (better->seconds <= best.seconds) break;  // equal but for rounding
    best = *std::move(better);
  }
  return best;
}

// The iterations after which all rhythms repeat.
std::uint64_t common_period(const Graph& graph) {
  constexpr std::uint64_t kMostInstances = 4'000'000;
  std::uint64_t period = 1;
  for (StepId step = 0; step < graph.step_count(); ++step) {
    period = std::lcm(period, std::uint64_t{graph.rhythm_of(step).period});
    if (period * graph.step_count() > kMostInstances)
      throw ScheduleError(
          fmt::format("the rhythms of {} steps repeat only after {} iterations or more: give them periods "
                      "that divide one another",
                      graph.step_count(), period));
  }
  return period;
}

// One iteration of its graph is `iterations` of another one.
struct Unrolled {
  Graph graph;
  std::vector<StepId> step_of;  // in the other graph, by step of this one
  std::vector<double> seconds;  // 0 where it rests
};
Unrolled unroll(const Graph& graph, const std::vector<double>& seconds, std::uint64_t iterations) {
  Unrolled unrolled;
  std::vector<std::vector<StepId>> instance_of(iterations, std::vector<StepId>(graph.step_count()));
  for (LaneId lane = 0; lane < graph.lane_count(); ++lane) (void)unrolled.graph.add_lane();
  for (std::uint64_t iteration = 0; iteration < iterations; ++iteration)
    for (LaneId lane = 0; lane < graph.lane_count(); ++lane)
      for (const StepId step : graph.steps_of(lane)) {
        instance_of[iteration][step] = unrolled.graph.add_step(lane);
        unrolled.step_of.push_back(step);
        const bool rests = graph.rhythm_of(step).rests_in(static_cast<std::int64_t>(iteration));
        unrolled.seconds.push_back(rests ? 0 : seconds[step]);
      }
  for (const Edge& edge : graph.edges())
    for (std::uint64_t iteration = 0; iteration < iterations; ++iteration) {
      if (graph.rhythm_of(edge.to).rests_in(static_cast<std::int64_t>(iteration))) continue;
      const std::uint64_t crossed = (edge.back + iterations - 1 - iteration) / iterations;
      const std::uint64_t from = iteration + crossed * iterations - edge.back;
      unrolled.graph.add_edge({instance_of[from][edge.from], instance_of[iteration][edge.to],
                               static_cast<std::uint32_t>(crossed)});
    }
  return unrolled;
}

}  // namespace

CriticalCycle critical_cycle(const Graph& graph, const std::vector<double>& seconds) {
  if (seconds.size() != graph.step_count())
    throw ScheduleError(
        fmt::format("the critical cycle of a schedule of {} steps needs one time for each of them, not {}",
                    graph.step_count(), seconds.size()));
  const std::uint64_t period = common_period(graph);
  if (period == 1) return cycle_of(graph, seconds);
  const Unrolled unrolled = unroll(graph, seconds, period);
  const CriticalCycle of_many = cycle_of(unrolled.graph, unrolled.seconds);
  CriticalCycle cycle{.seconds = of_many.seconds / static_cast<double>(period), .steps = {}};
  for (const StepId step : of_many.steps) cycle.steps.push_back(unrolled.step_of[step]);
  return cycle;
}

}  // namespace dear
