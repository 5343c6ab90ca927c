#include "dear/schedule/policies/backward_times.h"

#include <algorithm>

namespace dear {

std::vector<double> backward_ends(const Workload& workload) {
  std::vector<double> ends(workload.layers.size());
  double now = 0;
  for (std::size_t layer = ends.size(); layer-- > 0;)
    ends[layer] = now += workload.layers[layer].backward_seconds;
  return ends;
}

std::vector<double> ready_seconds(const Workload& workload, const Grouping& grouping) {
  const std::vector<double> ends = backward_ends(workload);
  const std::vector<LayerId> owners = owner_of(workload);
  std::vector<double> ready;
  for (const Bucket& bucket : grouping.buckets()) {
    LayerId first = owners[bucket.tensors.front()];
    for (const TensorId tensor : bucket.tensors) first = std::min(first, owners[tensor]);
    ready.push_back(ends[first]);
  }
  return ready;
}

}  // namespace dear
