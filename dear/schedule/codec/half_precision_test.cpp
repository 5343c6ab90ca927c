#include "dear/schedule/codec/half_precision.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/half.h"
#include "dear/schedule/codec/testing/payloads.h"

namespace dear::codec::half_precision_test {
namespace {

using codec::testing::any_bits;
using codec::testing::bits_of;
using codec::testing::decoded;
using codec::testing::encoded;
using codec::testing::Payload;
using codec::testing::whole;

template <class Narrow, class Convert>
void expect_rounds_each(const Compression& compression, Convert convert) {
  for (const std::size_t elements : {1U, 7U, 8U, 9U, 31U, 4103U}) {
    const std::vector<float> values = any_bits(elements, elements);
    std::vector<std::uint16_t> narrow;
    std::vector<float> wide, rest;
    for (const float value : values) {
      narrow.push_back(convert(value).bits);
      wide.push_back(widen(convert(value)));
      rest.push_back(value - wide.back());
    }
    const auto codec = make_reducible(compression, whole(elements));
    const Payload payload = encoded(*codec, values);
    ASSERT_EQ(payload.as<std::uint16_t>(), narrow);
    ASSERT_EQ(bits_of(decoded(*codec, payload, elements)), bits_of(wide));
    std::vector<float> left = values;
    codec->take_out(payload.data(), 0, left);
    for (std::size_t i = 0; i < elements; ++i) {  // a NaN's sign differs between compilers
      ASSERT_TRUE(left[i] == rest[i] || (std::isnan(left[i]) && std::isnan(rest[i]))) << values[i];
    }
  }
}

TEST(HalfPrecision, RoundsEachElement) {
  expect_rounds_each<Half>({.scheme = Scheme::fp16}, narrow_to_half);
  expect_rounds_each<BFloat16>({.scheme = Scheme::bf16}, narrow_to_bfloat16);
}

TEST(HalfPrecision, GivesTheSameBitsOnEveryProcessor) {
  for (const Kernels::Narrow Kernels::* type : {&Kernels::f16, &Kernels::bf16}) {
    const std::vector<float> values = any_bits(4103, 1);
    std::vector<std::uint16_t> fast(4103), slow(4103);
    (kernels().*type).narrow(values.data(), 4103, fast.data());
    (baseline_kernels().*type).narrow(values.data(), 4103, slow.data());
    ASSERT_EQ(fast, slow);
    std::vector<float> fast_wide(4103), slow_wide(4103);
    (kernels().*type).widen(fast.data(), 4103, fast_wide.data());
    (baseline_kernels().*type).widen(slow.data(), 4103, slow_wide.data());
    ASSERT_EQ(bits_of(fast_wide), bits_of(slow_wide));
  }
}

TEST(HalfPrecision, LeavesWhatRoundingTookAway) {
  const auto codec = make_reducible({.scheme = Scheme::fp16}, whole(3));
  std::vector<float> values = {1, 1 + 0x1p-12F, -3 - 0x1p-12F};
  codec->take_out(encoded(*codec, values).data(), 0, values);
  EXPECT_EQ(values, (std::vector<float>{0, 0x1p-12F, -0x1p-12F}));
}

}  // namespace
}  // namespace dear::codec::half_precision_test
