#include "dear/base/vocabulary/half.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace dear::half_test {
namespace {

constexpr std::uint32_t kPatterns = 1U << 16;

Half half(std::uint32_t bits) { return {static_cast<std::uint16_t>(bits)}; }
BFloat16 bfloat16(std::uint32_t bits) { return {static_cast<std::uint16_t>(bits)}; }

// IEEE 754 binary16 by its definition.
double half_by_definition(std::uint32_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const int exponent = static_cast<int>((bits >> 10) & 31U);
  const auto mantissa = static_cast<double>(bits & 1023U);
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, WidensEveryPatternByDefinition) {
  for (std::uint32_t bits = 0; bits < kPatterns; ++bits) {
    const double reference = half_by_definition(bits);
    const float found = widen(half(bits));
    if (std::isnan(reference)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(found), reference) << bits;
      ASSERT_EQ(std::signbit(found), (bits & 0x8000U) != 0) << bits;
    }
  }
}

TEST(Half, ComesBackFromEveryPattern) {
  for (std::uint32_t bits = 0; bits < kPatterns; ++bits) {
    const float wide = widen(half(bits));
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(widen(narrow_to_half(wide)))) << bits;
    } else {
      ASSERT_EQ(narrow_to_half(wide).bits, bits);
    }
  }
}

// Between each two neighbours: below the middle, at it (to the even one), and above it. The neighbour of the
// largest number is infinity, which stands where the next number would.
TEST(Half, RoundsToNearestEvenEverywhere) {
  for (std::uint32_t bits = 0; bits < 0x7c00U; ++bits) {
    const double above = bits + 1 == 0x7c00U ? 65536.0 : half_by_definition(bits + 1);
    const auto middle = static_cast<float>((half_by_definition(bits) + above) / 2);
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(narrow_to_half(middle).bits, even);
    ASSERT_EQ(narrow_to_half(std::nextafter(middle, 0.0F)).bits, bits);
    ASSERT_EQ(narrow_to_half(std::nextafter(middle, 1e9F)).bits, bits + 1);
    ASSERT_EQ(narrow_to_half(-middle).bits, even | 0x8000U);
  }
}

TEST(Half, TurnsWhatDoesNotFitIntoInfinityOrZero) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  EXPECT_EQ(narrow_to_half(kLargest).bits, 0x7c00U);
  EXPECT_EQ(narrow_to_half(-kLargest).bits, 0xfc00U);
  EXPECT_EQ(narrow_to_half(std::numeric_limits<float>::infinity()).bits, 0x7c00U);
  EXPECT_EQ(narrow_to_half(std::numeric_limits<float>::denorm_min()).bits, 0U);
  EXPECT_EQ(narrow_to_half(-std::numeric_limits<float>::min()).bits, 0x8000U);
}

TEST(BFloat16, ComesBackFromEveryPatternAndRoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < kPatterns; ++bits) {
    const float wide = widen(bfloat16(bits));
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(widen(narrow_to_bfloat16(wide)))) << bits;
      continue;
    }
    ASSERT_EQ(narrow_to_bfloat16(wide).bits, bits);
    if (std::isinf(wide)) {
      continue;
    }
    const auto middle = std::bit_cast<float>((bits << 16) | 0x8000U);
    ASSERT_EQ(narrow_to_bfloat16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(narrow_to_bfloat16(std::bit_cast<float>((bits << 16) | 0x7fffU)).bits, bits);
    ASSERT_EQ(narrow_to_bfloat16(std::bit_cast<float>((bits << 16) | 0x8001U)).bits, bits + 1);
  }
}

TEST(BFloat16, KeepsANanWhosePayloadIsAllLow) {
  EXPECT_TRUE(std::isnan(widen(narrow_to_bfloat16(std::bit_cast<float>(0x7f800001U)))));
}

}  // namespace
}  // namespace dear::half_test
