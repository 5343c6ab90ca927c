#include "studies/report/downhill_simplex.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::studies::downhill_simplex_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(DownhillSimplex, FindsTheBottomOfAnOvalBowl) {
  const auto loss = [](const std::vector<double>& at) {
    return std::pow(at[0] - 1, 2) + 100 * std::pow(at[1] + 2, 2);
  };
  EXPECT_THAT(downhill_simplex(loss, {0, 0}, 0.5, 200),
              ElementsAre(DoubleNear(1, 1e-6), DoubleNear(-2, 1e-6)));
}

TEST(DownhillSimplex, StaysWhereTheLossIsFinite) {
  const auto loss = [](const std::vector<double>& at) {
    return at[0] < 3 ? std::numeric_limits<double>::infinity() : std::abs(at[0]);
  };
  EXPECT_THAT(downhill_simplex(loss, {4}, 1, 100), ElementsAre(DoubleNear(3, 1e-6)));
}

TEST(DownhillSimplex, WithoutMovesIsTheBestCorner) {
  const auto loss = [](const std::vector<double>& at) { return std::abs(at[0] - 1) + std::abs(at[1]); };
  EXPECT_THAT(downhill_simplex(loss, {0, 0}, 1, 0), ElementsAre(1, 0));
}

}  // namespace
}  // namespace dear::studies::downhill_simplex_test
