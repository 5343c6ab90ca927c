#include <algorithm>

#include "dear/schedule/policies/backward_times.h"
#include "dear/schedule/policies/collective.h"
#include "dear/schedule/policies/rows.h"

namespace dear {
namespace {

// How much earlier, as a part of the time, one all-reduce of both must end than two; less is rounding.
constexpr double kGain = 1e-9;

// For each layer, whether it begins a bucket in the order of backward. The gradients of a layer join those
// that wait before them if one all-reduce of all ends sooner than two. For alpha-beta times this is the
// condition of the paper: they are ready less than one start-up time after the others could begin.
std::vector<bool> begin_buckets(const Workload& workload, const cost::CollectiveTimes& times) {
  const std::vector<LayerId> owners = owner_of(workload);
  const std::vector<double> ready = backward_ends(workload);
  std::vector<std::int64_t> bytes(workload.layers.size(), 0);
  for (TensorId tensor = 0; tensor < workload.tensors.size(); ++tensor)
    bytes[owners[tensor]] += workload.tensors[tensor].bytes();
  const auto seconds = [&](std::int64_t size) { return seconds_of(Collective::all_reduce, size, times); };

  std::vector<bool> begins(workload.layers.size(), false);
  double network_free = 0, open_ready = 0;
  std::int64_t open = 0;
  for (auto layer = static_cast<LayerId>(workload.layers.size()); layer-- > 0;) {
    if (bytes[layer] == 0) continue;
    const double open_ends = std::max(network_free, open_ready) + seconds(open);
    const double apart = std::max(open_ends, ready[layer]) + seconds(bytes[layer]);
    const double merged = std::max(network_free, ready[layer]) + seconds(open + bytes[layer]);
    if (open == 0 || merged >= apart * (1 - kGain)) {
      begins[layer] = true;
      if (open > 0) network_free = open_ends;
      open = 0;
    }
    open += bytes[layer];
    open_ready = ready[layer];
  }
  return begins;
}

Grouping merged(const Workload& workload, const cost::CollectiveTimes& times) {
  validate(workload);
  const std::vector<LayerId> owners = owner_of(workload);
  const std::vector<bool> begins = begin_buckets(workload, times);
  return group_backward(workload, [&](const Bucket& bucket, std::size_t, TensorId next) {
    const LayerId last = owners[bucket.tensors.back()];
    return std::any_of(begins.begin() + owners[next], begins.begin() + last, [](bool b) { return b; });
  });
}

}  // namespace

Policy mg_wfbp_policy() {
  return {
      .name = "mg-wfbp",
      .summary = "wfbp with gradients merged where that saves more start-up than waiting costs",
      .source = "MG-WFBP: Shi, Chu, Li, INFOCOM 2019, arXiv 1811.11141",
      .make = [](const Workload& workload, const Grouping& grouping,
                 const cost::CollectiveTimes&) { return make_wait_free({workload, grouping, "mg-wfbp"}); },
      .usual_grouping = merged,
      .bound = wait_free_bound};
}

}  // namespace dear
