#include "dear/schedule/policies/rows.h"

namespace dear {

// DeAR as published (Zhang et al., ICDCS 2023, arXiv 2302.12445): the all-gather carries averaged gradients
// and every rank updates everything. All-gathers follow all reduce-scatters on the network lane. They also
// follow the commit: they write gradients, which must not change under a program that reads them between
// backward and step.
Schedule make_dear_replicated(const Workload& workload, const Grouping& grouping,
                              const cost::CollectiveTimes&) {
  Iteration iteration(workload, grouping, "dear-replicated");
  const LaneId updates = iteration.add_update_lane();
  const std::vector<StepId> scattered = iteration.reduce_all(Collective::reduce_scatter);
  for (const BucketId bucket : iteration.forward_order()) {
    const StepId gathered = iteration.gather(Payload::gradients, bucket, scattered[bucket]);
    if (bucket == 0) iteration.edge(iteration.commit(), gathered);  // the lane's order passes it on
    iteration.publish(bucket, iteration.update(UpdateScope::whole, bucket, updates, gathered));
  }
  return std::move(iteration).build();
}

Policy dear_replicated_policy() {
  return {.name = "dear-replicated",
          .summary =
              "reduce-scatter under backward, all-gather of gradients under the next forward, whole update",
          .source = "DeAR: Zhang et al., ICDCS 2023, arXiv 2302.12445",
          .trains = true,
          .overlap = Overlap::decoupled,
          .make = make_dear_replicated,
          .usual_grouping = by_size,
          .bound = decoupled_bound};
}

}  // namespace dear
