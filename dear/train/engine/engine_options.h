#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/group/buffer.h"
#include "dear/comm/group/shard.h"
#include "dear/platform/cluster/network.h"
#include "dear/schedule/codec/compression.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/train/engine/update_rules.h"
#include "dear/train/streams/guard.h"

namespace dear::metrics {
class BucketHooks;  // train/metrics/bucket_hooks.h
}

namespace dear {
class StreamCollectives;  // train/streams/stream_collectives.h
}

namespace dear::buckets {
class SparseGradients;  // comm/buckets/sparse_gradients.h
}

namespace dear::train {

// What orders and borders are made from: the same on every rank.
struct EngineProfile {
  std::vector<double> forward_seconds, backward_seconds;  // by layer
  double update_seconds = 0;                              // of all parameters on one rank
  Link link;
};

struct EngineOptions {
  std::string policy;
  Fusion fusion;
  bool record = false;
  bool one_copy = false;  // of the parameters, for all ranks; the policy can, and the group shares memory
  UpdateRules rules{};
  std::shared_ptr<const ShardShares> shares{};  // of every bucket's shards; null where they are equal
  std::optional<Compression> compression{};
  std::optional<EngineProfile> profile{};
  // The memory that carries rank 0's decision in every iteration (schedule/policies/decision.h), of
  // kDecisionBytes. Without a buffer the schedule has no such step. All ranks give one, or none.
  View decision{};
  metrics::BucketHooks* hooks = nullptr;  // called after reductions; null for none
  std::int64_t iterations = 0;            // of engines before this one
  bool check_parameters = false;          // after each update
  // By parameter, the same on every rank: whose gradients came sparse. They are reduced as rows where that is
  // less to send, which `sparse_gradients` is told.
  std::vector<bool> sparse{};
  buckets::SparseGradients* sparse_gradients = nullptr;
  // Collectives of the device on which the parameters lie, where they and updates are enqueued on a stream of
  // it. Null for memory of the group. With it no one_copy and no decision.
  std::shared_ptr<StreamCollectives> collectives{};
  streams::Guard without_guard = streams::Guard::none;
};

}  // namespace dear::train
