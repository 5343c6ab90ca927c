#include "dear/schedule/fusion/layer_units.h"

#include <utility>

namespace dear::fusion {

LayerUnits::LayerUnits(const Workload& workload) : grouping(group(workload, PerLayer{})) {
  const std::size_t count = grouping.size();
  std::vector<LayerId> first_layer(count, static_cast<LayerId>(workload.layers.size()));
  for (LayerId layer = static_cast<LayerId>(workload.layers.size()); layer-- > 0;)
    for (const TensorId tensor : workload.layers[layer].tensors)
      first_layer[grouping.bucket_of(tensor)] = layer;
  std::vector<double> forward_before(workload.layers.size() + 1);
  std::vector<double> backward_before(workload.layers.size() + 1);
  for (std::size_t layer = 0; layer < workload.layers.size(); ++layer) {
    forward_before[layer + 1] = forward_before[layer] + workload.layers[layer].forward_seconds;
    backward_before[layer + 1] = backward_before[layer] + workload.layers[layer].backward_seconds;
  }
  backward = backward_before.back();
  forward_end = forward_before.back();
  bytes_before.push_back(0);
  for (std::size_t unit = 0; unit < count; ++unit) {
    bytes_before.push_back(bytes_before.back() + grouping.buckets()[unit].bytes);
    ready.push_back(backward - backward_before[first_layer[unit]]);
    forward_at.push_back(forward_before[first_layer[unit]]);
  }
  forward_at.push_back(forward_end);
}

Grouping join(const Workload& workload, const LayerUnits& units, const Borders& borders) {
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    Bucket& bucket = buckets.emplace_back();
    for (std::size_t unit = borders[i]; unit < borders[i + 1]; ++unit) {
      const std::vector<TensorId>& tensors = units.grouping.buckets()[unit].tensors;
      bucket.tensors.insert(bucket.tensors.end(), tensors.begin(), tensors.end());
    }
  }
  return {workload, std::move(buckets)};
}

}  // namespace dear::fusion
