#include "dear/cli/train_result.h"

#include <vector>

#include <gtest/gtest.h>

namespace dear::cli::train_result_test {
namespace {

TEST(Spread, QuantilesInterpolateBetweenNeighbours) {
  const Spread spread = spread_of({5, 1, 4, 2, 3, 6, 9, 8, 7, 10, 0});
  EXPECT_DOUBLE_EQ(spread.p10, 1);
  EXPECT_DOUBLE_EQ(spread.median, 5);
  EXPECT_DOUBLE_EQ(spread.p90, 9);
  EXPECT_DOUBLE_EQ(spread_of({1, 2}).median, 1.5);
}

TEST(Spread, OneValueIsAllQuantilesAndNoneIsZero) {
  EXPECT_DOUBLE_EQ(spread_of({7}).p10, 7);
  EXPECT_DOUBLE_EQ(spread_of({7}).p90, 7);
  EXPECT_DOUBLE_EQ(spread_of({}).median, 0);
}

// Iterations of one second, the first `slow` of a thousand.
double median_with_slow_start(std::size_t count, std::size_t slow) {
  std::vector<double> seconds(count, 1.0);
  for (std::size_t i = 0; i < slow; ++i) {
    seconds[i] = 1000;
  }
  return summarize_iterations(seconds, std::vector<double>(count, 0.0)).iteration_seconds.p90;
}

TEST(Iterations, ATenthButAtLeastTwoAndAtMostTenWarmUp) {
  EXPECT_EQ(median_with_slow_start(5, 2), 1);
  EXPECT_EQ(median_with_slow_start(50, 5), 1);
  EXPECT_EQ(median_with_slow_start(400, 10), 1);
  EXPECT_GT(median_with_slow_start(5, 3), 1);
  EXPECT_GT(median_with_slow_start(12, 5), 1);
}

TEST(Iterations, OfVeryFewTheLastCounts) {
  EXPECT_DOUBLE_EQ(summarize_iterations({3}, {1}).iteration_seconds.median, 3);
  EXPECT_DOUBLE_EQ(summarize_iterations({3, 2}, {1, 1}).iteration_seconds.median, 2);
  EXPECT_DOUBLE_EQ(summarize_iterations({}, {}).iteration_seconds.median, 0);
}

TEST(Iterations, ComputeIsAnIterationLessItsExposedCommunication) {
  const IterationTimes times = summarize_iterations({9, 9, 4, 5, 6}, {0, 0, 1, 3, 2});
  EXPECT_DOUBLE_EQ(times.iteration_seconds.median, 5);
  EXPECT_DOUBLE_EQ(times.exposed_communication_seconds, 2);
  EXPECT_DOUBLE_EQ(times.compute_seconds, 3);  // of 3, 2, 4
}

}  // namespace
}  // namespace dear::cli::train_result_test
