#include "dear/schedule/policy/iteration.h"
#include "dear/schedule/policy/policy.h"

namespace dear {

// Wait-free backpropagation (Zhang et al., Poseidon, USENIX ATC 2017, arXiv 1706.03292), with tensors fused
// into buckets as DDP (Li et al., VLDB 2020, doi:10.14778/3415478.3415530) and Horovod (arXiv 1802.05799) do.
Schedule make_wfbp(const Workload& workload, const Grouping& grouping) {
  Iteration iteration(workload, grouping, "wfbp");
  std::vector<StepId> reduced(grouping.size());
  for (const BucketId bucket : iteration.backward_order())
    reduced[bucket] = iteration.reduce(CollectiveOp::all_reduce, bucket);
  for (const BucketId bucket : iteration.backward_order())
    iteration.publish(
        bucket, iteration.update(UpdateScope::whole, bucket, iteration.compute_lane(), reduced[bucket]));
  return std::move(iteration).build();
}

}  // namespace dear
