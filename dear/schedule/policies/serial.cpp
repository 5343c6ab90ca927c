#include "dear/schedule/policies/rows.h"

namespace dear {

Schedule make_serial(const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes&) {
  Iteration iteration(workload, grouping, "serial");
  std::vector<StepId> reduced(grouping.size());
  for (const BucketId bucket : iteration.backward_order()) {
    reduced[bucket] = iteration.reduce(Collective::all_reduce, bucket);
    iteration.edge(iteration.commit(), reduced[bucket]);
  }
  for (const BucketId bucket : iteration.backward_order())
    iteration.publish(
        bucket, iteration.update(UpdateScope::whole, bucket, iteration.compute_lane(), reduced[bucket]));
  return std::move(iteration).build();
}

Policy serial_policy() {
  return {.name = "serial",
          .summary = "all-reduce after backward, nothing overlapped",
          .source = "synchronous SGD: Chen et al. 2016, arXiv 1604.00981",
          .trains = true,
          .make = make_serial,
          .usual_grouping = by_size,
          .bound = [](double f, double b, double r) { return f + b + r; }};
}

}  // namespace dear
