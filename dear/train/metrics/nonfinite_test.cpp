#include "dear/train/metrics/nonfinite.h"

#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::metrics::nonfinite_test {
namespace {

// The bits of NaN, infinities and of the largest number, in blocks and in the rest after them.
template <typename Bits>
void check(DType dtype, Bits nan, Bits infinity, Bits largest, Bits sign) {
  for (const std::int64_t count : {1, 7, 2048, 5000}) {
    std::vector<Bits> values(static_cast<std::size_t>(count), largest);
    EXPECT_EQ(find_nonfinite(values.data(), count, dtype).count, 0);
    EXPECT_EQ(find_nonfinite(values.data(), count, dtype).first, -1);
    values[static_cast<std::size_t>(count - 1)] = infinity | sign;
    EXPECT_EQ(find_nonfinite(values.data(), count, dtype).count, 1);
    EXPECT_EQ(find_nonfinite(values.data(), count, dtype).first, count - 1);
    values[static_cast<std::size_t>(count / 2)] = nan;
    EXPECT_EQ(find_nonfinite(values.data(), count, dtype).count, count == 1 ? 1 : 2);
    EXPECT_EQ(find_nonfinite(values.data(), count, dtype).first, count / 2);
  }
}

TEST(NonFinite, IsFoundInEveryType) {
  check<std::uint32_t>(DType::f32, 0x7fc0'0001U, 0x7f80'0000U, 0x7f7f'ffffU, 0x8000'0000U);
  check<std::uint64_t>(DType::f64, 0x7ff8'0000'0000'0001U, 0x7ff0'0000'0000'0000U, 0x7fef'ffff'ffff'ffffU,
                       0x8000'0000'0000'0000U);
  check<std::uint16_t>(DType::f16, 0x7e01U, 0x7c00U, 0x7bffU, 0x8000U);
  check<std::uint16_t>(DType::bf16, 0x7fc1U, 0x7f80U, 0x7f7fU, 0x8000U);
  const std::int32_t integer = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(find_nonfinite(&integer, 1, DType::i32).count, 0);
}

}  // namespace
}  // namespace dear::metrics::nonfinite_test
