#include "dear/base/vocabulary/spread.h"

#include <gtest/gtest.h>

namespace dear::spread_test {
namespace {

TEST(Spread, QuantilesInterpolateBetweenNeighbours) {
  const Spread spread = spread_of({5, 1, 4, 2, 3, 6, 9, 8, 7, 10, 0});
  EXPECT_DOUBLE_EQ(spread.p10, 1);
  EXPECT_DOUBLE_EQ(spread.median, 5);
  EXPECT_DOUBLE_EQ(spread.p90, 9);
  EXPECT_DOUBLE_EQ(spread_of({1, 2}).median, 1.5);
}

TEST(Spread, QuartilesInterpolateLikewise) {
  const Quartiles quartiles = quartiles_of({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(quartiles.first, 2);
  EXPECT_DOUBLE_EQ(quartiles.median, 3);
  EXPECT_DOUBLE_EQ(quartiles.third, 4);
  EXPECT_DOUBLE_EQ(quartiles_of({1, 2}).third, 1.75);
  EXPECT_DOUBLE_EQ(quartiles_of({}).median, 0);
}

TEST(Spread, OneValueIsAllQuantilesAndNoneIsZero) {
  EXPECT_DOUBLE_EQ(spread_of({7}).p10, 7);
  EXPECT_DOUBLE_EQ(spread_of({7}).p90, 7);
  EXPECT_DOUBLE_EQ(spread_of({}).median, 0);
}

}  // namespace
}  // namespace dear::spread_test
