#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "dear/schedule/codec/blocks.h"
#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/drawn_alike.h"
#include "dear/schedule/codec/kept.h"
#include "dear/schedule/codec/window.h"

namespace dear::codec {

// A block of neighbours that begins at an element that is drawn, each equally likely, and goes on at the
// segment's beginning where it reaches beyond its end: every coordinate travels equally often.
class DrawnBlocks {
 public:
  template <class Value, class Use>
  void for_each(const KeptSegments& kept_segments, std::int64_t step, std::span<Value> values, Use use) {
    const double ratio = kept_segments.ratio(step);
    for (const Segment& segment : kept_segments.segments()) {
      const std::int64_t elements = segment.range.size();
      if (elements == 0) continue;
      const std::int64_t count = kept(elements, ratio);
      Draw random(kept_segments.compression().seed, step, segment.key);
      const std::uint32_t begin = random.below(static_cast<std::uint64_t>(elements));
      use(Window<Value>(values.subspan(static_cast<std::size_t>(segment.range.begin),
                                       static_cast<std::size_t>(elements)),
                        begin, static_cast<std::size_t>(count)),
          kept_segments.scale(elements, count));
    }
  }
};
using RandomBlock = DrawnAlike<DrawnBlocks>;  // a slice of memory travels

// A random block at a place that each rank draws for itself, and sends along.
class OwnRandomBlock final : public Blocks {
 public:
  OwnRandomBlock(KeptSegments kept, int rank) : Blocks(std::move(kept)), rank_(rank) {}

 private:
  std::int64_t choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
                      std::int64_t count) override;

  int rank_;
};

}  // namespace dear::codec
