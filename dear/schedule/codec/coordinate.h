#pragma once

#include <cstdint>

namespace dear::codec {

// An element of a segment as payloads carry it.
struct Coordinate {
  std::uint32_t index;  // within the segment
  float value;
};

// The order of top-k, which NaN leads: numbers compare by magnitude, and all NaN are alike. Forced inline, as
// what sources compiled for different instructions share has to be.
constexpr std::uint32_t kNanOrder = 0x7f800001U;
[[gnu::always_inline]] constexpr std::uint32_t order_of(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  return magnitude < kNanOrder ? magnitude : kNanOrder;
}

}  // namespace dear::codec
