#include "dear/methods/kfac/factor.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::kfac::factor_test {
namespace {

using ::testing::ElementsAre;

TEST(Factors, StandInTheOrderOfAnIteration) {
  const std::vector<Factor> factors = factors_of(
      {{.name = "first", .inputs = 5, .outputs = 4}, {.name = "second", .inputs = 4, .outputs = 2}});
  EXPECT_THAT(factors, ElementsAre(Factor{0, Side::input, 5}, Factor{1, Side::input, 4},
                                   Factor{1, Side::output, 2}, Factor{0, Side::output, 4}));
  EXPECT_EQ(factors[0].packed_elements(), 15);
  EXPECT_THROW(factors_of({{.name = "empty", .inputs = 0, .outputs = 3}}), ConfigError);
}

template <typename T>
void round_trip(std::int64_t dimension) {
  std::mt19937 random(7);
  std::uniform_real_distribution<T> values(-1, 1);
  const auto d = static_cast<std::size_t>(dimension);
  std::vector<T> matrix(d * d);
  for (std::size_t row = 0; row < d; ++row)
    for (std::size_t column = row; column < d; ++column)
      matrix[row * d + column] = matrix[column * d + row] = values(random);
  std::vector<T> packed(d * (d + 1) / 2), again(d * d, T(99));
  pack_upper<T>(matrix, dimension, packed);
  unpack_upper<T>(packed, dimension, again);
  EXPECT_EQ(again, matrix) << dimension;
  if (dimension >= 2) {
    EXPECT_EQ(packed[1], matrix[1]);
    EXPECT_EQ(packed[d], matrix[d + 1]);
  }
}

TEST(Packing, GivesBackTheMatrix) {
  for (const std::int64_t dimension : {0, 1, 2, 3, 31, 32, 33, 64, 100}) {
    round_trip<float>(dimension);
    round_trip<double>(dimension);
  }
}

TEST(Packing, RefusesOtherSizes) {
  std::vector<float> matrix(9), packed(6), small(5);
  EXPECT_THROW(pack_upper<float>(matrix, 3, small), ConfigError);
  EXPECT_THROW(unpack_upper<float>(small, 3, matrix), ConfigError);
  EXPECT_THROW(pack_upper<float>(matrix, -3, packed), ConfigError);
}

}  // namespace
}  // namespace dear::methods::kfac::factor_test
