#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dear/schedule/codec/coordinates.h"
#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/drawn_alike.h"
#include "dear/schedule/codec/kept.h"

namespace dear::codec {

// Some elements of a segment, by their indices in it; what can be done with a Window can be done with them.
template <class Value>
struct Subset {
  Value* segment;
  std::span<const std::uint32_t> indices;
  [[nodiscard]] std::size_t size() const { return indices.size(); }
};

inline void copy_out(const Subset<const float>& subset, float* to) {
  for (const std::uint32_t index : subset.indices) *to++ = subset.segment[index];
}

template <class Set>
void merge(const Subset<float>& subset, const float* from, Set set) {
  for (const std::uint32_t index : subset.indices)
    subset.segment[index] = set(subset.segment[index], *from++);
}

inline void clear(const Subset<float>& subset) {
  for (const std::uint32_t index : subset.indices) subset.segment[index] = 0;
}

// Coordinates that are drawn without replacement, each subset equally likely, in ascending order.
class DrawnSubsets {
 public:
  template <class Value, class Use>
  void for_each(const KeptSegments& kept_segments, std::int64_t step, std::span<Value> values, Use use) {
    draw(kept_segments, step);
    const double ratio = kept_segments.ratio(step);
    std::span<const std::uint32_t> left = indices_;
    for (const Segment& segment : kept_segments.segments()) {
      const std::int64_t count = kept(segment.range.size(), ratio);
      const auto drawn = static_cast<std::size_t>(count);
      use(Subset<Value>{values.data() + segment.range.begin, left.first(drawn)},
          kept_segments.scale(segment.range.size(), count));
      left = left.subspan(drawn);
    }
  }

 private:
  // Draws the coordinates of this step, unless they are those of the last call.
  void draw(const KeptSegments& kept_segments, std::int64_t step);

  SubsetDraw subsets_;
  std::int64_t step_ = -1;              // whose coordinates are drawn
  std::vector<std::uint32_t> indices_;  // of each segment in turn, within it
};
using RandomK = DrawnAlike<DrawnSubsets>;

// Random-k with coordinates that each rank draws for itself, and sends along.
class OwnRandomK final : public Coordinates {
 public:
  OwnRandomK(KeptSegments kept, int rank) : Coordinates(std::move(kept)), rank_(rank) {}

 private:
  void choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
              std::span<Coordinate> chosen) override;

  int rank_;
  SubsetDraw subsets_;
  std::vector<std::uint32_t> indices_;
};

}  // namespace dear::codec
