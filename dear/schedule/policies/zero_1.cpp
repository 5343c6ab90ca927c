#include "dear/schedule/policies/rows.h"

namespace dear {
namespace {

// All updates come before the first all-gather, which is that of the bucket that is updated last. Every
// forward follows the last all-gather.
Schedule make_zero_1(const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes&) {
  Iteration iteration(workload, grouping, "zero-1");
  const std::vector<StepId> scattered = iteration.reduce_all(Collective::reduce_scatter);
  std::vector<StepId> updated(grouping.size());
  for (const BucketId bucket : iteration.backward_order())
    updated[bucket] =
        iteration.update(UpdateScope::shard, bucket, iteration.compute_lane(), scattered[bucket]);
  for (const BucketId bucket : iteration.forward_order()) {
    const StepId gathered = iteration.gather(Payload::parameters, bucket, updated[bucket]);
    iteration.publish(bucket, gathered);
    if (bucket + 1 == grouping.size()) iteration.next_forward_after(gathered);
  }
  return std::move(iteration).build();
}

}  // namespace

Policy zero_1_policy() {
  return {
      .name = "zero-1",
      .summary =
          "reduce-scatter under backward, update of the shard, all-gather of parameters before the "
          "next forward",
      .source = "ZeRO: Rajbhandari et al. 2020, arXiv 1910.02054",
      .leaves_out = "buckets of 25 MiB instead of DeepSpeed's 500 million elements, which would hide nothing",
      .residence = {.optimizer_sharded = true},
      .make = make_zero_1,
      .usual_grouping = by_size,
      .bound = [](double f, double b, double r) { return f + std::max(b, r / 2) + r / 2; }};
}

}  // namespace dear
