#include "dear/schedule/policies/rows.h"

namespace dear {

// DeAR (Zhang et al., ICDCS 2023, arXiv 2302.12445) with the update between the two halves of the all-reduce,
// where each rank holds the averaged gradients of its shard alone (as ZeRO does, arXiv 1910.02054): the
// all-gather carries parameters, and a rank updates, and keeps the optimiser's state of, 1/P of the model.
Schedule make_dear(const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes&) {
  Iteration iteration(workload, grouping, "dear");
  const LaneId updates = iteration.add_update_lane();
  const std::vector<StepId> scattered = iteration.reduce_all(Collective::reduce_scatter);
  for (const BucketId bucket : iteration.forward_order()) {
    const StepId updated = iteration.update(UpdateScope::shard, bucket, updates, scattered[bucket]);
    iteration.publish(bucket, iteration.gather(Payload::parameters, bucket, updated));
  }
  return std::move(iteration).build();
}

Policy dear_policy() {
  return {.name = "dear",
          .summary =
              "reduce-scatter under backward, update of the shard, all-gather of parameters under the "
              "next forward",
          .source =
              "DeAR: Zhang et al., ICDCS 2023, arXiv 2302.12445; ZeRO: Rajbhandari et al. 2020, arXiv "
              "1910.02054",
          .trains = true,
          .residence = {.optimizer_sharded = true},
          .overlap = Overlap::decoupled,
          .make = make_dear,
          .usual_grouping = by_size,
          .bound = decoupled_bound};
}

}  // namespace dear
