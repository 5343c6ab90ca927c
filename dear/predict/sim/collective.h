#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/base/vocabulary/collective.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/chunk_times.h"

// One collective alone on a cluster, by several algorithms.
namespace dear::sim {

// How closely algorithms that go in chunks are looked at.
enum class ChunkDetail : std::uint8_t {
  chunks,   // each dimension carries one phase at a time, on all lines alike: platform/cost/chunk_times.h
  messages  // every message of every rank, links shared: platform/fabric/chunk_play.h
};
std::string name_of(ChunkDetail detail);                // "chunks", "messages"
ChunkDetail parse_chunk_detail(std::string_view text);  // ConfigError that lists them

struct CollectiveOptions {
  Collective operation = Collective::all_reduce;  // or reduce_scatter, or all_gather
  std::int64_t bytes = 0;                         // of the whole vector
  int chunks = 64;                                // at most, of algorithms that go in chunks
  ChunkDetail detail = ChunkDetail::chunks;
};

// How much of a dimension's bandwidth a collective uses.
struct DimensionUse {
  std::string name;
  double bytes_per_second = 0;  // that a rank can send
  double sent_bytes = 0;        // by a rank
  double busy_seconds = 0;      // of rank 0
  double utilisation = 0;       // sent bytes over what could be sent until the end, 0 to 1
};

struct CollectiveRun {
  std::string algorithm;
  double seconds = 0;
  double utilisation = 0;  // of all dimensions together: the ideal time over the actual one
  // Empty unless the algorithm goes in chunks.
  std::string plan;  // how the plan was made, which `themis` chooses
  int chunks = 0;
  std::vector<DimensionUse> dimensions;
  std::vector<cost::ChunkSpan> spans;  // of rank 0
  std::uint64_t messages = 0;          // of all ranks, where they are looked at
};

// By an algorithm of cost::ClusterTimesOptions: those that go in chunks (platform/cost/chunk_planner.h) phase
// by phase or message by message, others by their closed form. ConfigError for what the cluster or the
// options cannot have.
CollectiveRun run_collective(const Cluster& cluster, const CollectiveOptions& options,
                             const std::string& algorithm);

// The time below which no algorithm comes: see cost::ideal_seconds().
double ideal_collective_seconds(const Cluster& cluster, const CollectiveOptions& options);

std::string to_json(const Cluster& cluster, const CollectiveOptions& options,
                    const std::vector<CollectiveRun>& runs);

// The trace of a run in chunks: a lane for each dimension, a span for each phase.
Trace trace_of(const Cluster& cluster, const CollectiveOptions& options, const CollectiveRun& run);

// SVG: for each run in chunks, how busy every dimension is from beginning to end. ConfigError where there is
// none.
std::string utilisation_plot(const Cluster& cluster, const CollectiveOptions& options,
                             const std::vector<CollectiveRun>& runs);

}  // namespace dear::sim
