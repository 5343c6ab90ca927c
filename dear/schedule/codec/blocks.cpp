#include "dear/schedule/codec/blocks.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/window.h"

namespace dear::codec {
namespace {

// Elements of 4 bytes that a block of so many takes in a payload.
constexpr std::int64_t padded(std::int64_t count) { return count == 0 ? 0 : (count + 2) / 2 * 2; }

template <class Value>
std::span<Value> part_of(std::span<Value> values, const Range& range) {
  return values.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}

// Calls use(window of the segment's values, values in the payload) for each block of a payload.
template <class Use>
void for_each_block(const KeptSegments& kept_segments, const std::byte* payload, std::int64_t step,
                    std::span<float> values, Use use) {
  const double ratio = kept_segments.ratio(step);
  for (const Segment& segment : kept_segments.segments()) {
    const std::int64_t count = kept(segment.range.size(), ratio);
    if (count == 0) {
      continue;
    }
    const std::uint32_t begin = *reinterpret_cast<const std::uint32_t*>(payload);
    if (begin >= segment.range.size()) {
      throw MismatchError(
          fmt::format("a payload names a block that begins at element {} of a segment of {}: its rank "
                      "has other tensors, or compresses them in another way",
                      begin, segment.range.size()));
    }
    use(Window<float>(part_of(values, segment.range), begin, static_cast<std::size_t>(count)),
        reinterpret_cast<const float*>(payload) + 1, kept_segments.scale(segment.range.size(), count));
    payload += 4 * padded(count);
  }
}

}  // namespace

std::int64_t Blocks::bytes(std::int64_t step) const {
  const double ratio = kept_.ratio(step);
  std::int64_t sum = 0;
  for (const Segment& segment : kept_.segments()) sum += 4 * padded(kept(segment.range.size(), ratio));
  return sum;
}

void Blocks::encode(std::span<const float> values, std::int64_t step, std::byte* payload) {
  const double ratio = kept_.ratio(step);
  for (const Segment& segment : kept_.segments()) {
    const std::int64_t count = kept(segment.range.size(), ratio);
    if (count == 0) {
      continue;
    }
    const std::span<const float> part = part_of(values, segment.range);
    const std::int64_t begin = choose(part, segment.key, step, count);
    auto* to = reinterpret_cast<float*>(payload);
    *reinterpret_cast<std::uint32_t*>(payload) = static_cast<std::uint32_t>(begin);
    copy_out({part, static_cast<std::size_t>(begin), static_cast<std::size_t>(count)}, to + 1);
    if (padded(count) > count + 1) {
      to[count + 1] = 0;
    }
    payload += 4 * padded(count);
  }
}

void Blocks::add(const std::byte* payload, std::int64_t step, float scale, std::span<float> values) {
  for_each_block(kept_, payload, step, values,
                 [&](const Window<float>& window, const float* carried, float unbiased) {
                   const float by = scale * unbiased;
                   merge(window, carried, [by](float value, float part) { return value + by * part; });
                 });
}

void Blocks::take_out(const std::byte* payload, std::int64_t step, std::span<float> values) {
  for_each_block(
      kept_, payload, step, values,
      [](const Window<float>& window, const float* /*carried*/, float /*unbiased*/) { clear(window); });
}

}  // namespace dear::codec
