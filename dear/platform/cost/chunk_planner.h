#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/collective.h"
#include "dear/platform/algorithm/chunk_plan.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/chunk_times.h"

// Makers of chunk plans. Every maker is deterministic: ranks that know the same network make the same plan.
namespace dear::cost {

struct ChunkPlanOptions {
  // One of chunk_planners():
  //   baseline     every chunk goes through the dimensions from the innermost to the outermost
  //   round-robin  chunk c begins in dimension c modulo D, and goes around
  //   themis-fifo  each chunk goes first where the load so far is least; lanes serve what is ready first
  //   themis-scf   the same orders; of the phases that are ready lanes serve the smallest
  //   balanced     each chunk takes the order after which the most loaded lane has least; lanes as in
  //                themis-scf
  //   themis       the fastest of all these, in as many chunks or fewer
  std::string algorithm = "themis";
  // At most so many, at least 1. Chunks are as even as goes, and of 64 bytes for each rank or more.
  int chunks = 64;
};

struct ChunkPlanner {
  std::string_view name;
  std::string_view summary;
};
const std::vector<ChunkPlanner>& chunk_planners();
bool is_chunk_planner(std::string_view name);

struct PlannedChunks {
  algorithm::ChunkPlan plan;
  double seconds = 0;  // as play() has it, from the end of the launch on
};

// Plans of the whole vector of `bytes`. ConfigError for another algorithm (it lists all), a number of chunks
// below 1 or above kMostChunks, negative bytes, and a collective that is none of shards.
inline constexpr int kMostChunks = 4096;
PlannedChunks make_chunk_plan(const ChunkNetwork& network, Collective collective, std::int64_t bytes,
                              const ChunkPlanOptions& options = {});
PlannedChunks make_chunk_plan(const Cluster& cluster, Collective collective, std::int64_t bytes,
                              const ChunkPlanOptions& options = {});

// A fastest plan of `chunks` even chunks, by search through all orders and all orders of service, to judge
// the makers by. Nothing where it would look at more than `most_steps` partial plans: about 10^6 for 3 chunks
// of an all-reduce over 2 dimensions.
std::optional<PlannedChunks> best_chunk_plan(const ChunkNetwork& network, Collective collective,
                                             std::int64_t bytes, int chunks, std::int64_t most_steps);

}  // namespace dear::cost
