#pragma once

#include <algorithm>
#include <cstdint>

namespace dear {

// The numbers from `begin` up to, but without, `end`: bytes or elements of a vector, blocks, steps.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] constexpr std::int64_t size() const { return end - begin; }
  [[nodiscard]] constexpr bool empty() const { return end <= begin; }
  [[nodiscard]] constexpr bool contains(std::int64_t number) const { return begin <= number && number < end; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

// Returns the numbers that lie in both ranges; an empty range where they do not overlap.
constexpr Range intersection(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace dear
