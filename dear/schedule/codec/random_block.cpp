#include "dear/schedule/codec/random_block.h"

#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/window.h"

namespace dear::codec {
namespace {

// Calls use(window of the segment's values, what decoding multiplies with) for each segment.
template <class Value, class Use>
void for_each_window(const KeptSegments& kept_segments, std::int64_t step, std::span<Value> values, Use use) {
  const double ratio = kept_segments.ratio(step);
  for (const Segment& segment : kept_segments.segments()) {
    const std::int64_t elements = segment.range.size();
    if (elements == 0) {
      continue;
    }
    const std::int64_t count = kept(elements, ratio);
    Draw random(kept_segments.compression().seed, step, segment.key);
    const std::uint32_t begin = random.below(static_cast<std::uint64_t>(elements));
    use(Window<Value>(
            values.subspan(static_cast<std::size_t>(segment.range.begin), static_cast<std::size_t>(elements)),
            begin, static_cast<std::size_t>(count)),
        kept_segments.scale(elements, count));
  }
}

}  // namespace

void RandomBlock::encode(std::span<const float> values, std::int64_t step, std::byte* payload) {
  auto* to = reinterpret_cast<float*>(payload);
  for_each_window(kept_, step, values, [&](const Window<const float>& window, float /*unbiased*/) {
    copy_out(window, to);
    to += window.size();
  });
}

// Only here are the values scaled: sums of scaled ones would be rounded twice.
void RandomBlock::decode(const std::byte* payload, std::int64_t step, std::span<float> values) {
  const auto* from = reinterpret_cast<const float*>(payload);
  for_each_window(kept_, step, values, [&](const Window<float>& window, float unbiased) {
    merge(window, from, [unbiased](float /*value*/, float part) { return unbiased * part; });
    from += window.size();
  });
}

void RandomBlock::take_out(const std::byte* /*payload*/, std::int64_t step, std::span<float> values) {
  for_each_window(kept_, step, values,
                  [](const Window<float>& window, float /*unbiased*/) { clear(window); });
}

std::int64_t OwnRandomBlock::choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
                                    std::int64_t /*count*/) {
  Draw random(kept_segments().compression().seed, step, key, rank_);
  return random.below(values.size());
}

}  // namespace dear::codec
