#pragma once

#include <cstdint>
#include <vector>

#include "dear/platform/algorithm/chunk_plan.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/fabric/chunk_traffic.h"

namespace dear::fabric {

struct ChunkPlayOptions {
  std::vector<double> enter_seconds{};  // when each rank begins; empty: all at 0
};

struct PlayedChunks {
  double seconds = 0;               // when the last rank is through
  std::vector<double> end_seconds;  // by rank
  std::vector<ChunkSpan> spans;     // of rank 0, as they end
  std::vector<double> bytes;        // by dimension: what a rank sends, on average
  std::uint64_t messages = 0;       // of all ranks
};

// A chunk plan alone on a network, message by message, as ChunkTraffic has it. [Note: ranks in step] in the
// source says when one line of ranks stands for all, so that even 10^5 ranks take no time. ConfigError for a
// grid that is not the cluster's, for as many messages as take hours, and for times that are not as many as
// ranks or not finite; else as validate(plan) and validate(cluster).
PlayedChunks play(const algorithm::ChunkPlan& plan, const Cluster& cluster,
                  const ChunkPlayOptions& options = {});

}  // namespace dear::fabric
