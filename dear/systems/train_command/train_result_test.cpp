#include "dear/systems/train_command/train_result.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::train_command::train_result_test {
namespace {

TEST(Iterations, OfARunATenthButAtLeastTwoAndAtMostTenWarmUp) {
  EXPECT_EQ(counted_of_run(5), (Range{2, 5}));
  EXPECT_EQ(counted_of_run(50), (Range{5, 50}));
  EXPECT_EQ(counted_of_run(400), (Range{10, 400}));
}

TEST(Iterations, OfAVeryShortRunTheLastCounts) {
  EXPECT_EQ(counted_of_run(2), (Range{1, 2}));
  EXPECT_EQ(counted_of_run(1), (Range{0, 1}));
  EXPECT_EQ(counted_of_run(0), (Range{0, 0}));
}

TEST(Iterations, OnlyThoseThatCountAreSummarised) {
  const std::vector<double> seconds = {9, 1, 9, 2, 3, 9}, exposed = {9, 0.5, 9, 0.5, 0.5, 9};
  const IterationTimes times = summarize_iterations(seconds, exposed, {{1, 2}, {3, 5}});
  EXPECT_DOUBLE_EQ(times.iteration_seconds.median, 2);
  EXPECT_DOUBLE_EQ(times.exposed_communication_seconds, 0.5);
  EXPECT_DOUBLE_EQ(times.compute_seconds, 1.5);
  EXPECT_DOUBLE_EQ(summarize_iterations(seconds, exposed, {}).iteration_seconds.median, 0);
}

TEST(Iterations, ComputeIsAnIterationLessItsExposedCommunication) {
  const IterationTimes times = summarize_iterations({9, 9, 4, 5, 6}, {0, 0, 1, 3, 2}, {{2, 5}});
  EXPECT_DOUBLE_EQ(times.iteration_seconds.median, 5);
  EXPECT_DOUBLE_EQ(times.exposed_communication_seconds, 2);
  EXPECT_DOUBLE_EQ(times.compute_seconds, 3);  // of 3, 2, 4
}

TEST(Kfac, TellsWhatItWentOnWithout) {
  EXPECT_EQ(text_of(KfacTroubles()), "");
  const std::string text = text_of({.given_up_inverses = 2, .nonfinite_factors = 0, .raised_dampings = 1});
  EXPECT_THAT(text,
              ::testing::AllOf(::testing::HasSubstr("2 inverses were"), ::testing::HasSubstr("1 damping was"),
                               ::testing::Not(::testing::HasSubstr("finite"))));
}

}  // namespace
}  // namespace dear::train_command::train_result_test
