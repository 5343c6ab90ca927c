#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dear/schedule/policies/builder.h"

namespace dear {

// The part that all policies share: forwards, backwards and a commit on the compute lane, and a network lane.
// A policy adds collectives and updates with the methods below, which also add the edges of the data that
// they read and write. For the policies' own use.
//
// Every dependence through data gets an edge, even where the order of a lane implies it, because the live
// program keeps its own order on the compute lane.
class Iteration {
 public:
  Iteration(const Workload& workload, const Grouping& grouping, std::string policy);

  [[nodiscard]] LaneId compute_lane() const { return compute_; }
  [[nodiscard]] LaneId add_update_lane();
  [[nodiscard]] StepId commit() const { return commit_; }

  [[nodiscard]] std::vector<BucketId> forward_order() const;
  // The order in which backward completes the gradients of buckets: a bucket's last gradients are those of
  // the layer that uses it first, and buckets are numbered by that layer.
  [[nodiscard]] std::vector<BucketId> backward_order() const;

  // Rank 0's buffers, before the first forward; call it first. After the forwards and all updates of the
  // iteration before: the broadcast is a part of the forward.
  void broadcast_buffers();
  // All-gathers before the forwards that need them, by bucket, in forward order: each is issued when the
  // forward reaches the layers of the bucket before it. Call it before any reduction, and
  // `parameters_from` with each update later.
  void gather_under_forward(ProcessGroup group = ProcessGroup::all);
  void parameters_from(StepId update, BucketId bucket) { builder_.edge(update, gathers_[bucket], 1); }

  // A collective on the bucket's gradients, after the backward of every layer that uses the bucket. Chunks of
  // one bucket that are all-reduced follow its first.
  StepId reduce(Collective collective, BucketId bucket, Range chunk = kWholeBucket,
                ProcessGroup group = ProcessGroup::all);
  // Reduces every bucket, in backward order. Returns the steps, by bucket.
  std::vector<StepId> reduce_all(Collective collective);
  // Reduces the shards that a reduction inside nodes has left.
  StepId reduce_across(BucketId bucket, StepId after);
  StepId gather(Payload payload, BucketId bucket, StepId after, Range chunk = kWholeBucket,
                ProcessGroup group = ProcessGroup::all);
  // The parameters once more, between the forwards and the backwards that use them, when the backward has
  // ended those of `after` (the whole forward when there is none) and all layers behind it.
  void gather_again(BucketId bucket, std::optional<LayerId> after, ProcessGroup group = ProcessGroup::all);
  // After `after` and the commit; before the next backward writes to the gradients that it reads.
  StepId update(UpdateScope scope, BucketId bucket, LaneId lane, StepId after);
  // Adds the update of a chunk of a shard, ahead of the commit: it waits for that of the iteration before.
  StepId update_ahead(BucketId bucket, Range chunk, LaneId lane, StepId after);
  // No gather writes parameters under a backward that reads them.
  void after_backward(BucketId bucket, StepId step);
  // The parameters are whole after `publisher`: the next forward of every layer that uses the bucket waits
  // for it.
  void publish(BucketId bucket, StepId publisher);
  // Every forward of the next iteration comes after the step.
  void next_forward_after(StepId step) { builder_.edge(step, forward_.front(), 1); }
  // Layers that use the bucket, ascending.
  [[nodiscard]] const std::vector<LayerId>& users(BucketId bucket) const { return layers_of_bucket_[bucket]; }
  void edge(StepId from, StepId to) { builder_.edge(from, to); }

  [[nodiscard]] Schedule build() && { return std::move(builder_).build(); }

 private:
  ScheduleBuilder builder_;
  LaneId compute_, network_;
  std::vector<StepId> forward_, backward_;  // by layer
  StepId commit_;
  std::vector<std::vector<LayerId>> layers_of_bucket_;
  StepId add_update(const Update& update, LaneId lane, StepId after);

  std::vector<std::optional<StepId>> first_chunk_;  // by bucket
  std::vector<StepId> gathers_;                     // by bucket
  std::optional<StepId> broadcast_;
};

}  // namespace dear
