#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "dear/base/vocabulary/ids.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/cost/chunk_service.h"

namespace dear::cost {
namespace {

using algorithm::ChunkPhase;
using algorithm::ChunkPlan;

// Branch and bound over active schedules (Giffler and Thompson 1960, doi:10.1287/opre.8.4.487): some optimum
// is among those in which no phase could begin earlier without another one beginning later.
class Search {
 public:
  Search(const ChunkNetwork& network, PlannedChunks known, std::int64_t most_steps)
      : network_(network), best_(std::move(known)), left_(most_steps) {}

  // All orders of service of the plan, which has orders. False when the steps are used up.
  bool look_at(ChunkPlan plan) {
    plan_ = std::move(plan);
    plan_.service.assign(index_of(network_.lane_count()), {});
    steps_ = plan_.steps();
    tasks_.assign(plan_.chunk_bytes.size(), {});
    lanes_.assign(plan_.service.size(), {});
    for (int chunk = 0; chunk < plan_.chunks(); ++chunk) {
      for (int step = 0; step < steps_; ++step) {
        const ChunkPhase phase{.chunk = chunk, .step = step};
        const int dimension = plan_.dimension_of(phase);
        const int lane = network_.lanes[index_of(dimension)];
        const double seconds = network_.phase_seconds(dimension, plan_.bytes_of(phase));
        tasks_[index_of(chunk)].phases.push_back({.lane = lane, .seconds = seconds});
        tasks_[index_of(chunk)].left_seconds += seconds;
        lanes_[index_of(lane)].left_seconds += seconds;
      }
    }
    return branch();
  }

  [[nodiscard]] PlannedChunks best() && { return std::move(best_); }

 private:
  struct Phase {
    int lane = 0;
    double seconds = 0;
  };
  struct Task {
    std::vector<Phase> phases;
    int step = 0;
    double free_seconds = 0;
    double left_seconds = 0;  // of the phases to come
  };
  struct Lane {
    double free_seconds = 0;
    double left_seconds = 0;
  };

  [[nodiscard]] double bound() const {
    double seconds = 0;
    for (const Task& task : tasks_) seconds = std::max(seconds, task.free_seconds + task.left_seconds);
    for (const Lane& lane : lanes_) seconds = std::max(seconds, lane.free_seconds + lane.left_seconds);
    return seconds;
  }
  [[nodiscard]] double begin_of(const Task& task) const {
    return std::max(task.free_seconds, lanes_[index_of(task.phases[index_of(task.step)].lane)].free_seconds);
  }
  [[nodiscard]] bool alike(int a, int b) const {
    const Task& one = tasks_[index_of(a)];
    const Task& other = tasks_[index_of(b)];
    return one.step == other.step && one.free_seconds == other.free_seconds &&
           plan_.chunk_bytes[index_of(a)] == plan_.chunk_bytes[index_of(b)] &&
           plan_.orders[index_of(a)] == plan_.orders[index_of(b)];
  }

  bool branch() {
    if (bound() >= best_.seconds * (1 - 1e-12)) return true;
    if (left_-- <= 0) return false;
    int lane = -1;
    double earliest = std::numeric_limits<double>::infinity();
    for (const Task& task : tasks_) {
      if (task.step == steps_) continue;
      const Phase& phase = task.phases[index_of(task.step)];
      const double end = begin_of(task) + phase.seconds;
      if (end < earliest) {
        earliest = end;
        lane = phase.lane;
      }
    }
    if (lane < 0) {
      best_.plan = plan_;
      best_.plan.name = "optimum";
      best_.seconds = bound();
      return true;
    }
    std::vector<int> tried;
    for (int chunk = 0; chunk < plan_.chunks(); ++chunk) {
      const Task& task = tasks_[index_of(chunk)];
      if (task.step == steps_ || task.phases[index_of(task.step)].lane != lane) continue;
      if (begin_of(task) > 0 && begin_of(task) >= earliest) continue;
      if (std::any_of(tried.begin(), tried.end(), [&](int other) { return alike(chunk, other); })) continue;
      tried.push_back(chunk);
      if (!serve_next(chunk)) return false;
    }
    return true;
  }

  bool serve_next(int chunk) {
    Task& task = tasks_[index_of(chunk)];
    const Phase phase = task.phases[index_of(task.step)];
    Lane& lane = lanes_[index_of(phase.lane)];
    const Task task_before = task;
    const Lane lane_before = lane;
    const double end = begin_of(task) + phase.seconds;
    plan_.service[index_of(phase.lane)].push_back({.chunk = chunk, .step = task.step});
    task.free_seconds = lane.free_seconds = end;
    task.left_seconds -= phase.seconds;
    lane.left_seconds -= phase.seconds;
    ++task.step;
    const bool finished = branch();
    plan_.service[index_of(phase.lane)].pop_back();
    task = task_before;
    lane = lane_before;
    return finished;
  }

  const ChunkNetwork& network_;
  PlannedChunks best_;
  std::int64_t left_;
  ChunkPlan plan_;
  std::vector<Task> tasks_;
  std::vector<Lane> lanes_;
  int steps_ = 0;
};

// Chunks are even, so it does not matter which of them has which order: `first` is the least for the next.
bool with_all_orders(Search& search, ChunkPlan& plan, const std::vector<std::vector<int>>& orders,
                     std::size_t first) {
  if (plan.orders.size() == plan.chunk_bytes.size()) return search.look_at(plan);
  for (std::size_t order = first; order < orders.size(); ++order) {
    plan.orders.push_back(orders[order]);
    const bool finished = with_all_orders(search, plan, orders, order);
    plan.orders.pop_back();
    if (!finished) return false;
  }
  return true;
}

}  // namespace

std::optional<PlannedChunks> best_chunk_plan(const ChunkNetwork& network, Collective collective,
                                             std::int64_t bytes, int chunks, std::int64_t most_steps) {
  PlannedChunks known = make_chunk_plan(network, collective, bytes, {.algorithm = "baseline", .chunks = 1});
  ChunkPlan plan = known.plan;
  std::vector<int> order = plan.orders.front();
  std::vector<std::vector<int>> orders;
  do {
    orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  plan.chunk_bytes = even_chunks(bytes, chunks);
  plan.orders.clear();
  // Any plan of so many chunks will do to begin with.
  known.seconds = std::numeric_limits<double>::infinity();
  for (const ChunkPlanner& planner : chunk_planners()) {
    PlannedChunks made = make_chunk_plan(network, collective, bytes,
                                         {.algorithm = std::string(planner.name), .chunks = chunks});
    if (made.plan.chunks() == chunks && made.seconds < known.seconds) known = std::move(made);
  }
  Search search(network, std::move(known), most_steps);
  if (!with_all_orders(search, plan, orders, 0)) return std::nullopt;
  return std::move(search).best();
}

}  // namespace dear::cost
