#include "dear/schedule/critical_cycle.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/schedule/precedence.h"

namespace dear {
namespace {

// Cycle improvement: as long as some cycle has a larger mean than the rate R found so far, R becomes the mean
// of that cycle. Such a cycle has a positive sum of the weights seconds - R * back, which Bellman-Ford finds
// for longest paths. If edges are relaxed in the order of the iteration, one pass settles all paths that
// cross no iteration, so few passes are needed.
class CycleFinder {
 public:
  CycleFinder(const Schedule& schedule, const std::vector<double>& seconds)
      : seconds_(seconds), edges_(edges_with_lanes(schedule)) {
    std::vector<std::size_t> position(seconds.size());
    const std::vector<StepId> order = schedule::Precedence(seconds.size(), edges_).order_within_iteration();
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

}  // namespace

CriticalCycle critical_cycle(const Schedule& schedule, const std::vector<double>& seconds) {
  if (seconds.size() != schedule.steps().size())
    throw ScheduleError(
        fmt::format("the critical cycle of a schedule of {} steps needs one time for each of them, not {}",
                    schedule.steps().size(), seconds.size()));
  CriticalCycle best;
  for (const Lane& lane : schedule.lanes()) {
    double busy = 0;
    for (const StepId step : lane.steps) busy += seconds[step];
    if (best.steps.empty() || busy > best.seconds) best = {busy, lane.steps};
  }
  const CycleFinder finder(schedule, seconds);
  while (std::optional<CriticalCycle> better = finder.better_than(best.seconds)) {
    if (better->seconds <= best.seconds) break;  // equal but for rounding
    best = *std::move(better);
  }
  return best;
}

}  // namespace dear
