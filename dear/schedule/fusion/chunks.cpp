#include "dear/schedule/fusion/chunks.h"

#include <algorithm>

namespace dear::fusion {

std::vector<TimedChunk> chunks_of(const Workload& workload, const Grouping& grouping,
                                  const cost::CollectiveTimes& times, Cutting cutting) {
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

  std::vector<TimedChunk> all;
  for (BucketId id = 0; id < grouping.size(); ++id) {
    const Bucket& bucket = grouping.buckets()[id];
    // Tensors are numbered by first use.
    const LayerId first = owners[bucket.tensors.front()];
    const bool cut = cutting == Cutting::in_chunks && bucket.chunk_bytes > 0;
    const std::int64_t chunk = cut ? bucket.chunk_bytes : bucket.bytes;
    for (std::int64_t begin = 0; begin < bucket.bytes; begin += chunk) {
      const std::int64_t end = std::min(begin + chunk, bucket.bytes), bytes = end - begin;
      all.push_back({.chunk = {id, bytes == bucket.bytes ? kWholeBucket : Range{begin, end}},
                     .ready = ready[first],
                     .scatter = seconds(times.reduce_scatter, bytes),
                     .update = workload.update_seconds * static_cast<double>(bytes) / bytes_of_all /
                               std::max(times.ranks, 1),
                     .gather = seconds(times.all_gather, bytes),
                     .forward_left = forward_left[first]});
    }
  }
  return all;
}

}  // namespace dear::fusion
