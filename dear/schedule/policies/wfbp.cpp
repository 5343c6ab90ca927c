#include "dear/schedule/policies/rows.h"

namespace dear {

Schedule make_wait_free(Iteration iteration) {
  const std::vector<StepId> reduced = iteration.reduce_all(Collective::all_reduce);
  for (const BucketId bucket : iteration.backward_order())
    iteration.publish(
        bucket, iteration.update(UpdateScope::whole, bucket, iteration.compute_lane(), reduced[bucket]));
  return std::move(iteration).build();
}

// Wait-free backpropagation (Zhang et al., Poseidon, USENIX ATC 2017, arXiv 1706.03292), with tensors fused
// into buckets as DDP (Li et al., VLDB 2020, doi:10.14778/3415478.3415530) and Horovod (arXiv 1802.05799) do.
Schedule make_wfbp(const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes&) {
  return make_wait_free({workload, grouping, "wfbp"});
}

Policy wfbp_policy() {
  return {.name = "wfbp",
          .summary = "wait-free backpropagation: all-reduce of each bucket under the rest of backward",
          .source = "Poseidon: Zhang et al., USENIX ATC 2017, arXiv 1706.03292",
          .trains = true,
          .make = make_wfbp,
          .usual_grouping = by_size,
          .bound = wait_free_bound};
}

}  // namespace dear
