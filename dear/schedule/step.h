#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "dear/base/collective.h"
#include "dear/base/ids.h"
#include "dear/fusion/grouping.h"

namespace dear {

// [Note: commit] A training iteration is forward, backward, commit. The commit is the moment in which the
// program calls step(): from then on gradients are final and the optimiser's options (the learning rate) are
// those of this iteration. Updates wait for it; reductions of gradients need not.
//
// [Note: updates ahead of the commit] An update may be allowed not to wait for the commit of its iteration.
// It then takes the options as they stood at the commit before, when it had returned to the program and the
// program had called its forward and backward: so whoever runs it keeps the options that stand when the first
// gradient arrives. What the program does between backward and step() comes too late for it: a new learning
// rate, clipping by the norm of all gradients, a look at gradients or parameters. A program that does none of
// these gets the same bits.

enum class Payload : std::uint8_t {
  gradients,
  parameters,        // for the next forward of their layers
  parameters_again,  // for the backward, where ranks have dropped them after the forward
  buffers,           // of the whole workload (Workload::buffer_bytes), from rank 0; of no bucket
  decision           // what rank 0 decided since its last commit, kDecisionBytes; of no bucket: decision.h
};
inline constexpr std::int64_t kDecisionBytes = 64;
inline bool is_of_bucket(Payload payload) {
  return payload != Payload::buffers && payload != Payload::decision;
}
enum class UpdateScope : std::uint8_t { shard, whole };

struct Forward {
  LayerId layer;
};
struct Backward {
  LayerId layer;
};
struct Commit {};
// Which ranks take part in a collective. Where no two ranks share a node, `node` is a rank alone and
// `across_nodes` is all.
enum class ProcessGroup : std::uint8_t {
  all,
  node,
  across_nodes  // those that hold the same shard in every node; of the bucket each carries its shard
};
struct Communicate {
  Collective collective;  // a reduce_scatter, all_gather, all_reduce or broadcast
  Payload payload;
  BucketId bucket = 0;
  Range chunk = kWholeBucket;
  ProcessGroup group = ProcessGroup::all;
};
enum class OptionsOf : std::uint8_t {
  this_commit,
  last_commit  // see [Note: updates ahead of the commit]
};
struct Update {
  UpdateScope scope;
  BucketId bucket;
  Range chunk = kWholeBucket;
  OptionsOf options = OptionsOf::this_commit;
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

// "forward 3", "reduce-scatter of gradients, bucket 2", "all-reduce of gradients, bucket 2, bytes 0 to 4096",
// "reduce-scatter of gradients inside nodes, bucket 1", "broadcast of buffers", "broadcast of decision",
// "update of shard, bucket 0"
std::string name_of(const Work& work);

}  // namespace dear
