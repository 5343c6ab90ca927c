#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/base/vocabulary/collective.h"
#include "dear/platform/algorithm/grid.h"
#include "dear/platform/algorithm/program.h"

// How a collective travels over a network of several dimensions in chunks, each in an order of its own, so
// that all dimensions are busy at once (Themis: Rashidi et al. 2022, doi:10.1145/3470496.3527382).
namespace dear::algorithm {

// A phase of a chunk: its collective along the lines of one dimension. `step` counts from 0.
struct ChunkPhase {
  int chunk = 0;
  int step = 0;
  friend bool operator==(const ChunkPhase&, const ChunkPhase&) = default;
};

// A reduce-scatter goes through the dimensions in the order of its chunk, an all-gather in the opposite one,
// an all-reduce first does the one and then the other. The phases of a chunk follow each other. Each lane
// serves one phase at a time, in the order listed: nothing is decided while it runs, so ranks that hold equal
// plans cannot wait for each other in a circle.
//
// A chunk is a piece of every rank's shard, so each rank ends with the shard that it has in any other
// algorithm (shard_of in dear/comm/group).
struct ChunkPlan {
  std::string name;                                // how it was made: "themis-fifo"
  Collective collective = Collective::all_reduce;  // or reduce_scatter, or all_gather
  Grid grid;
  std::vector<std::string> algorithms;           // by dimension, of line_algorithms()
  std::vector<int> lanes;                        // by dimension; those that share links share a lane
  std::vector<std::int64_t> chunk_bytes;         // of the whole vector, by chunk; none is negative
  std::vector<std::vector<int>> orders;          // by chunk: all dimensions of more than one member
  std::vector<std::vector<ChunkPhase>> service;  // by lane: the phases in its dimensions

  [[nodiscard]] int chunks() const { return static_cast<int>(chunk_bytes.size()); }
  [[nodiscard]] std::int64_t bytes() const;  // of the whole vector
  [[nodiscard]] int steps() const;           // phases of each chunk
  [[nodiscard]] int dimension_of(ChunkPhase phase) const;
  [[nodiscard]] Collective collective_of(ChunkPhase phase) const;  // reduce_scatter or all_gather
  // The bytes on each rank that its line reduces and scatters, or has gathered at the end.
  [[nodiscard]] double bytes_of(ChunkPhase phase) const;
  // The dimensions that a reduce-scatter of this chunk goes through before this phase's.
  [[nodiscard]] std::vector<int> before(ChunkPhase phase) const;
  friend bool operator==(const ChunkPlan&, const ChunkPlan&) = default;

 private:
  // The place of the phase's dimension in the order of its chunk.
  [[nodiscard]] std::size_t place_of(ChunkPhase phase) const;
};

// ScheduleError naming the chunk, dimension or lane: an order that is not a permutation, a phase that no lane
// or two lanes serve, or a service that would wait in a circle. ConfigError for what is no grid, no
// collective of shards, no algorithm, or no size of a chunk.
void validate(const ChunkPlan& plan);

// One number for all that ranks must agree on; names do not count.
std::uint64_t digest(const ChunkPlan& plan);

// All phases, each after what it waits for: the phase of its chunk before, and what its lane serves before.
// Where several may come next, the lane that has served the smallest share of its phases goes on; of equal
// shares the first lane.
// ScheduleError where some wait in a circle.
std::vector<ChunkPhase> in_order(const ChunkPlan& plan);

// The plan as messages. Block r · C + c is rank r's piece of chunk c of C. Rounds follow in_order(): what one
// rank sends to another goes in the order of the lane.
Program program_of(const ChunkPlan& plan);

}  // namespace dear::algorithm
