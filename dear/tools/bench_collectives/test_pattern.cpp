#include "dear/tools/bench_collectives/test_pattern.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::bench_collectives {
namespace {

constexpr int kMostExact = 256;  // bf16 has 8 significant bits

std::uint64_t encode(int value, DType dtype) {
  const auto number = static_cast<std::uint64_t>(value);
  switch (dtype) {
    case DType::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    case DType::bf16:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16;
    case DType::f16: {
      if (value == 0) {
        return 0;
      }
      const int exponent = std::bit_width(number) - 1;
      return (static_cast<std::uint64_t>(exponent + 15) << 10) | ((number << (10 - exponent)) & 0x3ffU);
    }
    case DType::i32:
    case DType::i64:
    case DType::u8:
      break;
  }
  return number;
}

// Spreads elements, so that a block in the wrong place is seen.
std::int64_t mix(std::int64_t element) {
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(element) * 0x9E3779B97F4A7C15U) >> 40U);
}

}  // namespace

TestPattern::TestPattern(DType dtype, int ranks)
    : dtype_(dtype), ranks_(ranks), values_(std::min(8, kMostExact / ranks + 1)) {
  if (ranks < 1 || ranks > kMostExact) {
    throw ConfigError(fmt::format("results of {} ranks cannot be verified: use 1 to {}", ranks, kMostExact));
  }
  for (int value = 0; value <= kMostExact; ++value) {
    encoded_.push_back(encode(value, dtype));
  }
}

int TestPattern::value(int rank, std::int64_t element) const {
  return static_cast<int>((mix(element) + 3 * rank) % values_);
}

int TestPattern::sum(std::int64_t element) const {
  int total = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    total += value(rank, element);
  }
  return total;
}

// Elements are little-endian, as is the table: their first bytes are theirs.
void TestPattern::fill(std::byte* data, Range range, int rank) const {
  const auto size = static_cast<std::size_t>(size_of(dtype_));
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    std::memcpy(data + static_cast<std::size_t>(i - range.begin) * size,
                &encoded_[static_cast<std::size_t>(value(rank, i))], size);
  }
}

template <typename Expected>
std::optional<std::string> TestPattern::first_difference(const std::byte* data, Range range,
                                                         Expected expected) const {
  const auto size = static_cast<std::size_t>(size_of(dtype_));
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const int wanted = expected(i);
    const std::byte* const at = data + static_cast<std::size_t>(i - range.begin) * size;
    if (std::memcmp(at, &encoded_[static_cast<std::size_t>(wanted)], size) != 0) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, at, size);
      return fmt::format("element {} has the bits {:#x}, but must be {}, {:#x}", i, bits, wanted,
                         encoded_[static_cast<std::size_t>(wanted)]);
    }
  }
  return std::nullopt;
}

std::optional<std::string> TestPattern::differs_from_rank(const std::byte* data, Range range,
                                                          int rank) const {
  return first_difference(data, range, [&](std::int64_t element) { return value(rank, element); });
}

std::optional<std::string> TestPattern::differs_from_sum(const std::byte* data, Range range) const {
  return first_difference(data, range, [&](std::int64_t element) { return sum(element); });
}

}  // namespace dear::bench_collectives
