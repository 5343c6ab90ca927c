#include "dear/workload/layers/checkpointing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace dear {
namespace {

constexpr int kSizes = 64;  // of the largest segment, that are tried

struct Segments {
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();  // kept at the ends, and one segment whole
  std::vector<std::size_t> ends;                                  // the last layer of each
};

// The segments of at most `most` bytes whose ends keep least: the last one needs to keep none, since its
// backward pass comes first.
Segments segments_within(const std::vector<std::int64_t>& kept, std::int64_t most) {
  const std::size_t layers = kept.size();
  // Least bytes of ends where a segment begins at that layer, and where it ends then.
  std::vector<std::int64_t> least(layers + 1, 0);
  std::vector<std::size_t> end(layers, layers - 1);
  for (std::size_t begin = layers; begin-- > 0;) {
    std::int64_t inside = 0, best = std::numeric_limits<std::int64_t>::max();
    for (std::size_t last = begin; last < layers; ++last) {
      inside += kept[last];
      if (inside > most && last > begin) break;
      const std::int64_t ends = (last + 1 < layers ? kept[last] : 0) + least[last + 1];
      if (ends < best) {
        best = ends;
        end[begin] = last;
      }
    }
    least[begin] = best;
  }
  Segments segments{.bytes = 0, .ends = {}};
  std::int64_t largest = 0;
  for (std::size_t begin = 0; begin < layers; begin = segments.ends.back() + 1) {
    std::int64_t inside = 0;
    for (std::size_t layer = begin; layer <= end[begin]; ++layer) inside += kept[layer];
    largest = std::max(largest, inside);
    segments.ends.push_back(end[begin]);
  }
  segments.bytes = least[0] + largest;
  return segments;
}

}  // namespace

Workload with_activation_checkpointing(Workload workload) {
  std::vector<std::int64_t> kept;
  std::int64_t all = 0, largest = 0;
  for (Layer& layer : workload.layers) {
    layer.backward_seconds += layer.forward_seconds;
    kept.push_back(layer.activation_bytes);
    all += layer.activation_bytes;
    largest = std::max(largest, layer.activation_bytes);
  }
  if (all == 0) return workload;
  Segments best;
  for (int i = 0; i <= kSizes; ++i) {
    Segments segments =
        segments_within(kept, largest + std::llround(static_cast<double>(all - largest) * i / kSizes));
    if (segments.bytes < best.bytes) best = std::move(segments);
  }
  // What is there of a segment that is whole stands at the last layer.
  std::int64_t ends = 0;
  for (Layer& layer : workload.layers) layer.activation_bytes = 0;
  for (const std::size_t end : best.ends) {
    if (end + 1 == kept.size()) continue;
    workload.layers[end].activation_bytes = kept[end];
    ends += kept[end];
  }
  workload.layers.back().activation_bytes += best.bytes - ends;
  return workload;
}

}  // namespace dear
