#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dear/comm/grid/grid_backend.h"
#include "dear/comm/group/group.h"
#include "dear/platform/algorithm/chunk_plan.h"

namespace dear::grid::grid_in_test {

using algorithm::ChunkPhase;
using algorithm::ChunkPlan;
using algorithm::Grid;

struct PlanShape {
  int chunks = 5;
  unsigned seed = 1;
  bool one_lane = false;  // all dimensions share one
};

// Chunks of random sizes in random orders; lanes serve phases as random progress makes them ready.
inline ChunkPlan random_plan(const Grid& grid, Collective collective, std::int64_t bytes,
                             const PlanShape& shape) {
  std::mt19937 random(shape.seed + static_cast<unsigned>(bytes) + static_cast<unsigned>(collective));
  ChunkPlan plan{.name = "random",
                 .collective = collective,
                 .grid = grid,
                 .algorithms = std::vector<std::string>(grid.sizes.size(), "ring"),
                 .lanes = {},
                 .chunk_bytes = {},
                 .orders = {},
                 .service = std::vector<std::vector<ChunkPhase>>(shape.one_lane ? 1 : grid.sizes.size())};
  std::vector<int> order;
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    plan.lanes.push_back(shape.one_lane ? 0 : dimension);
    if (grid.sizes[static_cast<std::size_t>(dimension)] > 1) order.push_back(dimension);
  }
  std::vector<int> turns;
  std::int64_t left = bytes;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    std::shuffle(order.begin(), order.end(), random);
    plan.orders.push_back(order);
    const bool last = chunk + 1 == shape.chunks;
    const std::int64_t some = last || left == 0 ? left : static_cast<std::int64_t>(random()) % left;
    plan.chunk_bytes.push_back(some);
    left -= some;
    turns.insert(turns.end(), static_cast<std::size_t>(plan.steps()), chunk);
  }
  std::shuffle(turns.begin(), turns.end(), random);
  std::vector<int> steps(static_cast<std::size_t>(shape.chunks), 0);
  for (const int chunk : turns) {
    const ChunkPhase phase{.chunk = chunk, .step = steps[static_cast<std::size_t>(chunk)]++};
    const int lane = plan.lanes[static_cast<std::size_t>(plan.dimension_of(phase))];
    plan.service[static_cast<std::size_t>(lane)].push_back(phase);
  }
  return plan;
}

inline ChunkPlanner random_planner(const Grid& grid, const PlanShape& shape = {}) {
  return
      [=](Collective collective, std::int64_t bytes) { return random_plan(grid, collective, bytes, shape); };
}

inline Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

// A grid of lines of `whole`, on the thread or in the process of a rank.
inline std::unique_ptr<Backend> grid_over(std::unique_ptr<Backend> whole, GridOptions options) {
  auto lines = split_into_lines(*whole, options.grid, soon());
  return make_grid_backend({.whole = std::move(whole), .lines = std::move(lines)}, std::move(options));
}

// A backend that calls a function of the test before each collective of the one it wraps.
class Wrapped final : public Backend {
 public:
  Wrapped(std::unique_ptr<Backend> inner, std::function<void()> before)
      : inner_(std::move(inner)), before_(std::move(before)) {}
  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] int name() const override { return inner_->name(); }
  [[nodiscard]] std::string description() const override { return inner_->description(); }
  [[nodiscard]] bool takes_any_buffer() const override { return inner_->takes_any_buffer(); }
  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return inner_->allocate(bytes, deadline);
  }
  Timing run(const Request& request, Deadline deadline) override {
    before_();
    return inner_->run(request, deadline);
  }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  std::unique_ptr<Backend> inner_;
  std::function<void()> before_;
};

// A grid whose lines are wrapped.
inline std::unique_ptr<Backend> wrapped_grid_over(std::unique_ptr<Backend> whole, GridOptions options,
                                                  const std::function<void()>& before) {
  auto lines = split_into_lines(*whole, options.grid, soon());
  for (auto& line : lines) {
    if (line) line = std::make_unique<Wrapped>(std::move(line), before);
  }
  return make_grid_backend({.whole = std::move(whole), .lines = std::move(lines)}, std::move(options));
}

}  // namespace dear::grid::grid_in_test
