#include "dear/schedule/policies/rows.h"

namespace dear {
namespace {

// Elements of a bucket: the default of Megatron-Core, or as many for each rank that shards do not get too
// small.
constexpr std::int64_t kBucketElements = 40'000'000;
constexpr std::int64_t kElementsByRank = 1'000'000;

Grouping by_elements(const Workload& workload, const cost::CollectiveTimes& times) {
  const std::int64_t full = std::max(kBucketElements, kElementsByRank * times.ranks);
  return group_backward(workload, [full](const Bucket& bucket, std::size_t, TensorId) {
    return bucket.bytes >= full * size_of(bucket.dtype);
  });
}

Schedule make_megatron(const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes&) {
  Iteration iteration(workload, grouping, "megatron");
  iteration.gather_under_forward();
  const std::vector<StepId> scattered = iteration.reduce_all(Collective::reduce_scatter);
  for (const BucketId bucket : iteration.backward_order())
    iteration.parameters_from(
        iteration.update(UpdateScope::shard, bucket, iteration.compute_lane(), scattered[bucket]), bucket);
  return std::move(iteration).build();
}

}  // namespace

Policy megatron_policy() {
  return {.name = "megatron",
          .summary =
              "reduce-scatter under backward, update of the shard, all-gather of the next bucket under "
              "the forward of each",
          .source =
              "Megatron-Core, distributed optimiser with overlapped reduce-scatter and all-gather: "
              "Narayanan et al., SC 2021, arXiv 2104.04473",
          .leaves_out = "data parallelism alone; gradients travel in the dtype of the parameters",
          .residence = {.optimizer_sharded = true},
          .overlap = Overlap::decoupled,
          .make = make_megatron,
          .usual_grouping = by_elements,
          .bound = decoupled_bound};
}

}  // namespace dear
