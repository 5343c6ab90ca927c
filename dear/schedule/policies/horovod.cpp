#include <algorithm>
#include <cmath>

#include "dear/schedule/policies/backward_times.h"
#include "dear/schedule/policies/rows.h"

namespace dear {
namespace {

constexpr std::int64_t kFusionBytes = 64 * kMiB;
constexpr double kCycleSeconds = 1e-3;

// The negotiation: rank 0 gathers which tensors are ready on every rank, and broadcasts which go next, along
// binomial trees.
double negotiation_seconds(const cost::CollectiveTimes& times) {
  return 2 * std::ceil(std::log2(times.ranks)) * times.message_seconds;
}

// A launch is what software takes, negotiation included: only what is longer comes on top.
double beyond_launch(const cost::CollectiveTimes& times) {
  return std::max(0.0, negotiation_seconds(times) - times.launch_seconds);
}

// Tensors that are ready in the same cycle travel together, as far as they fit into the fusion buffer. The
// first cycle begins with the backward, and each takes at least as long as its negotiation. See [Note: orders
// found at run time].
Grouping by_cycle(const Workload& workload, const cost::CollectiveTimes& times) {
  validate(workload);
  const std::vector<LayerId> owners = owner_of(workload);
  const std::vector<double> ready = backward_ends(workload);
  const double cycle_seconds = std::max(kCycleSeconds, negotiation_seconds(times));
  const auto cycle_of = [&](TensorId tensor) { return std::ceil(ready[owners[tensor]] / cycle_seconds); };
  return group_backward(workload, [&](const Bucket& bucket, std::size_t, TensorId next) {
    return cycle_of(next) != cycle_of(bucket.tensors.back()) ||
           bucket.bytes + workload.tensors[next].bytes() > kFusionBytes;
  });
}

}  // namespace

Policy horovod_policy() {
  return {
      .name = "horovod",
      .summary = "wfbp; rank 0 negotiates what is ready in every cycle of 1 ms, fused up to 64 MiB",
      .source = "Horovod: Sergeev and Del Balso 2018, arXiv 1802.05799",
      .leaves_out =
          "cycles are played when tensors are grouped and then fixed; a bucket does not wait for "
          "the end of its cycle; copies into the fusion buffer take no time; no response cache",
      .make = [](const Workload& workload, const Grouping& grouping,
                 const cost::CollectiveTimes&) { return make_wait_free({workload, grouping, "horovod"}); },
      .usual_grouping = by_cycle,
      .bound = wait_free_bound,
      .overhead_seconds = beyond_launch};
}

}  // namespace dear
