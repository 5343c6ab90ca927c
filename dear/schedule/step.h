#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "dear/base/ids.h"

namespace dear {

// [Note: commit] A training iteration is forward, backward, commit. The commit is the moment in which the
// program calls step(): from then on gradients are final and the optimiser's options (the learning rate) are
// those of this iteration. Updates wait for it; reductions of gradients need not.

enum class CollectiveOp : std::uint8_t { reduce_scatter, all_gather, all_reduce, broadcast };
enum class Payload : std::uint8_t {
  gradients,
  parameters,        // for the next forward of their layers
  parameters_again,  // for the backward, where ranks have dropped them after the forward
  buffers            // of the whole workload (Workload::buffer_bytes), from rank 0; of no bucket
};
enum class UpdateScope : std::uint8_t { shard, whole };

struct Forward {
  LayerId layer;
};
struct Backward {
  LayerId layer;
};
struct Commit {};
// Those bytes of a bucket that one of several collectives carries; by default all of them.
struct Piece {
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();  // or the bucket's end, if that is before
  [[nodiscard]] bool whole() const { return *this == Piece{}; }
  friend bool operator==(const Piece&, const Piece&) = default;
};
struct Communicate {
  CollectiveOp op;
  Payload payload;
  BucketId bucket = 0;
  Piece piece{};
};
struct Update {
  UpdateScope scope;
  BucketId bucket;
};
using Work = std::variant<Forward, Backward, Commit, Communicate, Update>;

// One piece of work on one lane.
struct Step {
  Work work;
  LaneId lane;
};

// Step `to` of iteration i waits for step `from` of iteration i - back.
struct Edge {
  StepId from;
  StepId to;
  std::uint32_t back = 0;
  friend bool operator==(const Edge&, const Edge&) = default;
};

// What runs a lane's steps: the program itself (forward, backward, commit), the optimiser beside it, or the
// network.
enum class LaneKind : std::uint8_t { compute, update, network };

// A lane runs its steps in the order listed, once an iteration, and then again from the first.
struct Lane {
  std::string name;
  LaneKind kind;
  std::vector<StepId> steps;
};

// "reduce-scatter", "all-gather", "all-reduce", "broadcast"
std::string name_of(CollectiveOp op);
// "forward 3", "reduce-scatter of gradients, bucket 2", "all-reduce of gradients, bucket 2, bytes 0 to 4096",
// "broadcast of buffers", "update of shard, bucket 0"
std::string name_of(const Work& work);

}  // namespace dear
