#include "dear/schedule/policy/iteration.h"
#include "dear/schedule/policy/policy.h"

namespace dear {

Schedule make_serial(const Workload& workload, const Grouping& grouping) {
  Iteration iteration(workload, grouping, "serial");
  std::vector<StepId> reduced(grouping.size());
  for (const BucketId bucket : iteration.backward_order()) {
    reduced[bucket] = iteration.reduce(CollectiveOp::all_reduce, bucket);
    iteration.edge(iteration.commit(), reduced[bucket]);
  }
  for (const BucketId bucket : iteration.backward_order())
    iteration.publish(
        bucket, iteration.update(UpdateScope::whole, bucket, iteration.compute_lane(), reduced[bucket]));
  return std::move(iteration).build();
}

}  // namespace dear
