#pragma once

#include <string>
#include <vector>

#include "dear/schedule/builder.h"

namespace dear {

// What all policies share: an iteration of forwards, backwards and a commit on the compute lane, a network
// lane, and the steps that a policy adds to them together with what these wait for. For the policies' own
// use.
//
// Every dependence through data gets an edge, also where a lane's order implies it: the live program keeps
// its own order on the compute lane.
class Iteration {
 public:
  Iteration(const Workload& workload, const Grouping& grouping, std::string policy);

  [[nodiscard]] LaneId compute_lane() const { return compute_; }
  [[nodiscard]] LaneId add_update_lane();
  [[nodiscard]] StepId commit() const { return commit_; }

  [[nodiscard]] std::vector<BucketId> forward_order() const;
  // In which backward completes the gradients of buckets: a bucket's last gradients are those of the layer
  // that uses it first, and buckets are numbered by that layer.
  [[nodiscard]] std::vector<BucketId> backward_order() const;

  // A collective on the bucket's gradients, after the backward of every layer that uses the bucket.
  StepId reduce(CollectiveOp op, BucketId bucket);
  StepId gather(Payload payload, BucketId bucket, StepId after);
  // After `after` and the commit; before the next backward writes to the gradients that it reads.
  StepId update(UpdateScope scope, BucketId bucket, LaneId lane, StepId after);
  // The parameters are whole after `publisher`: the next forward of every layer that uses the bucket waits
  // for it.
  void publish(BucketId bucket, StepId publisher);
  void edge(StepId from, StepId to) { builder_.edge(from, to); }

  [[nodiscard]] Schedule build() && { return std::move(builder_).build(); }

 private:
  ScheduleBuilder builder_;
  LaneId compute_, network_;
  std::vector<StepId> forward_, backward_;  // by layer
  StepId commit_;
  std::vector<std::vector<LayerId>> layers_of_bucket_;
};

}  // namespace dear
