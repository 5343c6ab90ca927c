#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "dear/base/vocabulary/collective.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/schedule/fusion/grouping.h"

namespace dear {

// [Note: commit] A training iteration is forward, backward, commit. The commit is the moment at which the
// program calls step(): from then on gradients are final, and the optimiser's options (such as the learning
// rate) are those of this iteration. Updates wait for the commit; reductions of gradients need not.
//
// [Note: updates ahead of the commit] A policy may let an update run before the commit of its iteration. The
// executor then applies the optimiser's options as they are when the first gradient of the iteration arrives.
// Acts of the program between backward and step() come too late for such an update: a new learning rate,
// clipping by the norm of all gradients, reading gradients or parameters. A program that does none of these
// gets the same bits.

// The values that a collective carries.
enum class Payload : std::uint8_t {
  gradients,
  parameters,        // for the next forward of their layers
  parameters_again,  // for the backward, where ranks have dropped them after the forward
  encoded,           // gradients as a codec has encoded them, one part of them: see [Note: encoded buckets]
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
// The ranks that take part in a collective. Where no two ranks share a node, `node` is a rank alone and
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
  Range chunk = kWholeBucket;  // of encoded gradients: from 0 to the bytes of the part, as foreseen
  ProcessGroup group = ProcessGroup::all;
  std::uint8_t part = 0;  // of encoded gradients
};
// Whose optimiser options an update applies.
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
// Turns a bucket's gradients into what travels instead of them; a later round turns what has come into what
// travels next.
struct Encode {
  BucketId bucket;
  std::uint8_t round = 0;
};
// Turns what has come into the bucket's reduced gradients.
struct Decode {
  BucketId bucket;
};
// The work of a step.
using Work = std::variant<Forward, Backward, Commit, Communicate, Update, Encode, Decode>;

// A unit of work on one lane.
struct Step {
  Work work;
  LaneId lane;
};

// Where the steps of a lane run: in the program itself (forward, backward, commit), in the optimiser beside
// it, on the network, or in the codec of compressed gradients.
enum class LaneKind : std::uint8_t { compute, update, network, codec };
std::string_view name_of(LaneKind kind);  // "compute"

struct Lane {
  std::string name;
  LaneKind kind;
};

// "forward 3", "reduce-scatter of gradients, bucket 2", "all-reduce of gradients, bucket 2, bytes 0 to 4096",
// "reduce-scatter of gradients inside nodes, bucket 1", "all-gather of encoded part 1, bucket 2", "broadcast
// of buffers", "broadcast of decision", "update of shard, bucket 0", "encode, bucket 2", "encode round 1,
// bucket 2", "decode, bucket 2"
std::string name_of(const Work& work);

}  // namespace dear
