#include "dear/tools/bench_collectives/test_pattern.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::bench_collectives::test_pattern_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::ThrowsMessage;

TEST(TestPattern, SumsAreExactInEveryDtype) {
  for (const int ranks : {1, 2, 3, 8, 128, 256}) {
    const TestPattern pattern(DType::bf16, ranks);
    int largest = 0;
    for (std::int64_t element = 0; element < 1000; ++element) {
      int sum = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        sum += pattern.value(rank, element);
      }
      EXPECT_EQ(pattern.sum(element), sum);
      largest = std::max(largest, sum);
    }
    EXPECT_LE(largest, 256);  // bf16 counts no further without a gap
    EXPECT_GT(largest, 0);
  }
  EXPECT_THAT([] { TestPattern(DType::f32, 257); }, ThrowsMessage<ConfigError>(HasSubstr("1 to 256")));
}

TEST(TestPattern, DifferBetweenRanksAndPlaces) {
  const TestPattern pattern(DType::f32, 4);
  const auto of = [&](int rank, std::int64_t begin) {
    std::vector<int> values;
    for (std::int64_t i = 0; i < 64; ++i) {
      values.push_back(pattern.value(rank, begin + i));
    }
    return values;
  };
  EXPECT_NE(of(0, 0), of(1, 0));
  for (const std::int64_t shift : {1, 2, 4, 64, 1024, 4096}) {
    EXPECT_NE(of(0, 0), of(0, shift));
  }
}

// The encodings that the standards give, written down by hand.
TEST(TestPattern, AreEncodedAsTheDtypeSays) {
  const auto first_bytes = [](DType dtype, int wanted) {
    const TestPattern pattern(dtype, 4);
    std::int64_t element = 0;
    while (pattern.value(0, element) != wanted) {
      ++element;
    }
    std::uint64_t bits = 0;
    pattern.fill(reinterpret_cast<std::byte*>(&bits), {element, element + 1}, 0);
    return bits;
  };
  EXPECT_EQ(first_bytes(DType::f32, 5), 0x40a00000U);
  EXPECT_EQ(first_bytes(DType::f64, 5), 0x4014000000000000U);
  EXPECT_EQ(first_bytes(DType::f16, 5), 0x4500U);
  EXPECT_EQ(first_bytes(DType::f16, 1), 0x3c00U);
  EXPECT_EQ(first_bytes(DType::f16, 0), 0U);
  EXPECT_EQ(first_bytes(DType::bf16, 5), 0x40a0U);
  EXPECT_EQ(first_bytes(DType::i32, 5), 5U);
  EXPECT_EQ(first_bytes(DType::i64, 5), 5U);
  EXPECT_EQ(first_bytes(DType::u8, 5), 5U);
}

TEST(TestPattern, ADifferenceIsFoundAndNamed) {
  const TestPattern pattern(DType::i32, 3);
  std::vector<std::int32_t> data(100);
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  const Range range{50, 150};
  pattern.fill(bytes, range, 2);
  EXPECT_EQ(pattern.differs_from_rank(bytes, range, 2), std::nullopt);
  EXPECT_NE(pattern.differs_from_rank(bytes, range, 1), std::nullopt);
  data[7] = 99;
  EXPECT_THAT(pattern.differs_from_rank(bytes, range, 2),
              Optional(HasSubstr("element 57 has the bits 0x63")));
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    data[static_cast<std::size_t>(i - range.begin)] = pattern.sum(i);
  }
  EXPECT_EQ(pattern.differs_from_sum(bytes, range), std::nullopt);
  ++data[99];
  EXPECT_THAT(pattern.differs_from_sum(bytes, range), Optional(HasSubstr("element 149 ")));
  EXPECT_EQ(pattern.differs_from_sum(bytes, {50, 50}), std::nullopt);
}

}  // namespace
}  // namespace dear::bench_collectives::test_pattern_test
