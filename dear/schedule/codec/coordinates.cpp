#include "dear/schedule/codec/coordinates.h"

#include <type_traits>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::codec {
namespace {

constexpr auto kCoordinateBytes = static_cast<std::int64_t>(sizeof(Coordinate));
static_assert(kCoordinateBytes == 8);

// Calls use(segment's values, its coordinates) for each segment. A payload is aligned as its elements are.
template <class Byte, class Value, class Use>
void for_each_list(const KeptSegments& kept_segments, Byte* payload, std::int64_t step,
                   std::span<Value> values, Use use) {
  using Entry = std::conditional_t<std::is_const_v<Byte>, const Coordinate, Coordinate>;
  const double ratio = kept_segments.ratio(step);
  auto* at = reinterpret_cast<Entry*>(payload);
  for (const Segment& segment : kept_segments.segments()) {
    const std::int64_t count = kept(segment.range.size(), ratio);
    use(segment,
        values.subspan(static_cast<std::size_t>(segment.range.begin),
                       static_cast<std::size_t>(segment.range.size())),
        std::span<Entry>(at, static_cast<std::size_t>(count)));
    at += count;
  }
}

[[noreturn]] void refuse_coordinate(std::uint32_t index, std::size_t elements) {
  throw MismatchError(
      fmt::format("a payload names coordinate {} of a segment of {} elements: its rank has other "
                  "tensors, or compresses them in another way",
                  index, elements));
}

}  // namespace

std::int64_t Coordinates::bytes(std::int64_t step) const { return kept_.total(step) * kCoordinateBytes; }
std::int64_t Coordinates::most_bytes() const { return kept_.most() * kCoordinateBytes; }

void Coordinates::encode(std::span<const float> values, std::int64_t step, std::byte* payload) {
  for_each_list(kept_, payload, step, values,
                [&](const Segment& segment, std::span<const float> part, std::span<Coordinate> chosen) {
                  choose(part, segment.key, step, chosen);
                });
}

void Coordinates::add(const std::byte* payload, std::int64_t step, float scale, std::span<float> values) {
  for_each_list(kept_, payload, step, values,
                [&](const Segment& /*segment*/, std::span<float> part, std::span<const Coordinate> carried) {
                  const float by = scale * kept_.scale(std::ssize(part), std::ssize(carried));
                  for (const Coordinate& coordinate : carried) {
                    if (coordinate.index >= part.size()) {
                      refuse_coordinate(coordinate.index, part.size());
                    }
                    part[coordinate.index] += by * coordinate.value;
                  }
                });
}

void Coordinates::take_out(const std::byte* payload, std::int64_t step, std::span<float> values) {
  for_each_list(kept_, payload, step, values,
                [&](const Segment& /*segment*/, std::span<float> part, std::span<const Coordinate> carried) {
                  for (const Coordinate& coordinate : carried) {
                    if (coordinate.index >= part.size()) {
                      refuse_coordinate(coordinate.index, part.size());
                    }
                    part[coordinate.index] = 0;
                  }
                });
}

}  // namespace dear::codec
