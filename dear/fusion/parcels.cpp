#include "dear/fusion/parcels.h"

#include <algorithm>

namespace dear {

Parcels parcels_of(const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes& times,
                   Cutting cutting) {
  const std::size_t layers = workload.layers.size();
  std::vector<double> ready(layers), forward_left(layers);
  double backward = 0, forward = 0;
  for (std::size_t layer = layers; layer-- > 0;) {
    ready[layer] = backward += workload.layers[layer].backward_seconds;
    forward_left[layer] = forward += workload.layers[layer].forward_seconds;
  }
  const std::vector<LayerId> owners = owner_of(workload);
  const auto bytes_of_all = static_cast<double>(workload.bytes());
  const auto seconds = [](const cost::CollectiveTimes::Seconds& of, std::int64_t bytes) {
    return of ? of(bytes) : 0;
  };

  Parcels all;
  for (BucketId id = 0; id < grouping.size(); ++id) {
    const Bucket& bucket = grouping.buckets()[id];
    // Tensors are numbered by first use.
    const LayerId first = owners[bucket.tensors.front()];
    const bool cut = cutting == Cutting::in_pieces && bucket.piece_bytes > 0;
    const std::int64_t piece = cut ? bucket.piece_bytes : bucket.bytes;
    for (std::int64_t begin = 0; begin < bucket.bytes; begin += piece) {
      const std::int64_t end = std::min(begin + piece, bucket.bytes), bytes = end - begin;
      all.cuts.push_back({id, begin, end});
      all.parcels.push_back({.ready = ready[first],
                             .scatter = seconds(times.reduce_scatter, bytes),
                             .update = workload.update_seconds * static_cast<double>(bytes) / bytes_of_all /
                                       std::max(times.ranks, 1),
                             .gather = seconds(times.all_gather, bytes),
                             .forward_left = forward_left[first]});
    }
  }
  return all;
}

}  // namespace dear
