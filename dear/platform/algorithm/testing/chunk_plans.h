#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dear/platform/algorithm/chunk_plan.h"

namespace dear::algorithm::testing {

// Rings, a lane for each dimension, no chunks yet.
inline ChunkPlan empty_chunk_plan(const Grid& grid, Collective collective) {
  ChunkPlan plan{.name = "test",
                 .collective = collective,
                 .grid = grid,
                 .algorithms = std::vector<std::string>(grid.sizes.size(), "ring"),
                 .lanes = {},
                 .chunk_bytes = {},
                 .orders = {},
                 .service = {}};
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) plan.lanes.push_back(dimension);
  return plan;
}

// Lanes serve phases in the order in which chunks take these turns, each of a chunk once for each step.
inline void serve_by_turns(ChunkPlan& plan, const std::vector<int>& turns) {
  plan.service.assign(plan.lanes.size(), {});
  std::vector<int> steps(static_cast<std::size_t>(plan.chunks()), 0);
  for (const int chunk : turns) {
    const ChunkPhase phase{.chunk = chunk, .step = steps[static_cast<std::size_t>(chunk)]++};
    const int lane = plan.lanes[static_cast<std::size_t>(plan.dimension_of(phase))];
    plan.service[static_cast<std::size_t>(lane)].push_back(phase);
  }
}

// Lanes serve the first step of all chunks before the second one.
inline void serve_step_by_step(ChunkPlan& plan) {
  std::vector<int> turns;
  for (int step = 0; step < plan.steps(); ++step) {
    for (int chunk = 0; chunk < plan.chunks(); ++chunk) turns.push_back(chunk);
  }
  serve_by_turns(plan, turns);
}

// Adds chunks of fewer than `most_bytes` in random orders; lanes serve phases as random progress of the
// chunks makes them ready.
inline void add_random_chunks(ChunkPlan& plan, int chunks, std::int64_t most_bytes, std::mt19937& random) {
  std::vector<int> order;
  for (int dimension = 0; dimension < plan.grid.dimensions(); ++dimension) {
    if (plan.grid.sizes[static_cast<std::size_t>(dimension)] > 1) order.push_back(dimension);
  }
  std::vector<int> turns;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    std::shuffle(order.begin(), order.end(), random);
    plan.orders.push_back(order);
    plan.chunk_bytes.push_back(static_cast<std::int64_t>(random()) % most_bytes);
    turns.insert(turns.end(), static_cast<std::size_t>(plan.steps()), chunk);
  }
  std::shuffle(turns.begin(), turns.end(), random);
  serve_by_turns(plan, turns);
}

}  // namespace dear::algorithm::testing
