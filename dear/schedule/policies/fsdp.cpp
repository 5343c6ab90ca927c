#include <algorithm>

#include "dear/schedule/policies/rows.h"

namespace dear {

Schedule make_sharded(Iteration iteration, std::size_t layer_count, ProcessGroup group) {
  iteration.gather_under_forward(group);

  std::vector<BucketId> units = iteration.forward_order();
  std::stable_sort(units.begin(), units.end(), [&](BucketId a, BucketId b) {
    return iteration.users(a).back() > iteration.users(b).back();
  });
  const auto reductions = iteration.backward_order();
  auto reduction = reductions.begin();
  std::vector<StepId> reduced(units.size());
  const auto reduce_next = [&] {
    const BucketId bucket = *reduction++;
    reduced[bucket] = iteration.reduce(Collective::reduce_scatter, bucket, kWholeBucket, group);
    if (group == ProcessGroup::node) reduced[bucket] = iteration.reduce_across(bucket, reduced[bucket]);
  };
  const auto layers = static_cast<LayerId>(layer_count);
  for (std::size_t i = 0; i < units.size(); ++i) {
    // The backward that ends where that of the unit before begins.
    const LayerId after = i == 0 ? layers : iteration.users(units[i - 1]).back() + 1;
    while (reduction != reductions.end() && iteration.users(*reduction).front() > after) reduce_next();
    iteration.gather_again(units[i], after < layers ? std::optional(after) : std::nullopt, group);
  }
  while (reduction != reductions.end()) reduce_next();

  for (const BucketId bucket : iteration.backward_order())
    iteration.parameters_from(
        iteration.update(UpdateScope::shard, bucket, iteration.compute_lane(), reduced[bucket]), bucket);
  return std::move(iteration).build();
}

Policy fsdp_policy() {
  return {.name = "fsdp",
          .summary =
              "parameters, gradients and state sharded: all-gather before forward and before backward, "
              "reduce-scatter after it",
          .source = "PyTorch FSDP: Zhao et al., VLDB 2023, arXiv 2304.11277",
          .leaves_out =
              "the last unit is gathered again too; units are chosen by size; one network lane for "
              "gathers and reductions",
          .residence = {.optimizer_sharded = true, .gradients_sharded = true, .parameters_sharded = true},
          .overlap = Overlap::decoupled,
          .traffic = 1.5,
          .make =
              [](const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes&) {
                return make_sharded({workload, grouping, "fsdp"}, workload.layers.size(), ProcessGroup::all);
              },
          .usual_grouping = by_size,
          .bound = [](double f, double b, double r) { return std::max(f, r / 2) + std::max(b, r); }};
}

}  // namespace dear
