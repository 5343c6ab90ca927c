#include <numeric>

#include "dear/schedule/policy/rows.h"

namespace dear {
namespace {

// A bucket is a unit. Its parameters are dropped after the forward of its layers and gathered again for their
// backward. In both directions a unit is gathered while the one before it computes. Collectives of the
// backward stand on the lane in the order in which that issues them; a gather comes before a reduction that
// the same backward releases.
Schedule make_fsdp(const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes&) {
  Iteration iteration(workload, grouping, "fsdp");
  iteration.gather_under_forward();

  std::vector<BucketId> units = iteration.forward_order();
  std::stable_sort(units.begin(), units.end(), [&](BucketId a, BucketId b) {
    return iteration.users(a).back() > iteration.users(b).back();
  });
  auto reductions = iteration.backward_order();
  auto reduction = reductions.begin();
  std::vector<StepId> scattered(grouping.size());
  const auto layers = static_cast<LayerId>(workload.layers.size());
  const auto reduce_behind = [&](LayerId layer) {
    for (; reduction != reductions.end() && iteration.users(*reduction).front() > layer; ++reduction)
      scattered[*reduction] = iteration.reduce(CollectiveOp::reduce_scatter, *reduction);
  };
  for (std::size_t i = 0; i < units.size(); ++i) {
    // The backward that ends where that of the unit before begins.
    const LayerId after = i == 0 ? layers : iteration.users(units[i - 1]).back() + 1;
    reduce_behind(after);
    iteration.gather_again(units[i], after < layers ? std::optional(after) : std::nullopt);
  }
  for (; reduction != reductions.end(); ++reduction)
    scattered[*reduction] = iteration.reduce(CollectiveOp::reduce_scatter, *reduction);

  for (const BucketId bucket : iteration.backward_order())
    iteration.parameters_from(
        iteration.update(UpdateScope::shard, bucket, iteration.compute_lane(), scattered[bucket]), bucket);
  return std::move(iteration).build();
}

}  // namespace

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
          .traffic = 1.5,
          .make = make_fsdp,
          .usual_grouping = by_size,
          .bound = [](double f, double b, double r) { return std::max(f, r / 2) + std::max(b, r); }};
}

}  // namespace dear
