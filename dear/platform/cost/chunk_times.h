#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/base/vocabulary/collective.h"
#include "dear/platform/algorithm/chunk_plan.h"
#include "dear/platform/cluster/cluster.h"

// Times of collectives that travel in chunks over several dimensions at once. A lane is a server: it carries
// one phase of one chunk at a time, on all lines of its dimensions alike. So P ranks cost no more than one.
namespace dear::cost {

// The time of a phase along a line: start_up + per_byte times the bytes of the phase (ChunkPlan::bytes_of).
struct LineTime {
  double start_up_seconds = 0;
  double seconds_per_byte = 0;
};

// A cluster as chunks see it. Lines go by "ring" on a ring, by "direct" on a full mesh, on a switch by
// "halving-doubling" where that sends no more than a ring, by "ring" elsewhere. Ranks of a member that share
// its links have their lines at the same time, each with its share.
struct ChunkNetwork {
  algorithm::Grid grid;
  std::vector<std::string> algorithms;  // by dimension
  std::vector<int> lanes;               // by dimension: lanes_of(cluster)
  std::vector<LineTime> lines;          // by dimension
  double launch_seconds = 0;            // of a whole collective: Software of the cluster

  [[nodiscard]] int lane_count() const;
  [[nodiscard]] double phase_seconds(int dimension, double bytes) const;
  // Bytes that a rank can send into this dimension in a second. Infinite without a second member.
  [[nodiscard]] double bytes_per_second(int dimension) const;
};
ChunkNetwork chunk_network(const Cluster& cluster);  // ConfigError as validate(cluster)

// Seconds before the first phase of a collective: as long as its launch takes beyond the start-ups of one
// chunk, as in ClusterTimes.
double launch_beyond_start_ups(const ChunkNetwork& network, Collective collective);

// No plan is faster: all bytes that a rank has to send, at the rate of all lanes together. Start-ups do not
// count. ConfigError for negative bytes, and for a collective that is none of shards.
double ideal_seconds(const ChunkNetwork& network, Collective collective, std::int64_t bytes);

struct ChunkSpan {
  algorithm::ChunkPhase phase;
  int dimension = 0;
  double begin_seconds = 0;
  double end_seconds = 0;
};

struct ChunkTimes {
  double seconds = 0;
  std::vector<double> busy_seconds;  // by dimension
  std::vector<double> sent_bytes;    // by dimension, of one rank
  std::vector<ChunkSpan> spans;      // in the order in which phases end
};

// Plays a plan, from the end of its launch on: each lane serves its phases in their order, each as soon as it
// may. ScheduleError and
// ConfigError as validate(plan), and for a plan of another grid.
ChunkTimes play(const algorithm::ChunkPlan& plan, const ChunkNetwork& network);

// The part of the rate of all lanes together that is used: ideal over actual seconds. 0 where nothing is
// sent.
double utilisation(const algorithm::ChunkPlan& plan, const ChunkTimes& times, const ChunkNetwork& network);

}  // namespace dear::cost
