#include "dear/systems/train_command/train_comparison.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::train_command::train_comparison_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A policy whose iterations take `seconds[round]` in each round, of which `exposed` is communication.
TrainResult run_of(const std::string& policy, const std::vector<double>& seconds, double exposed) {
  TrainResult run{.policy = policy};
  for (const double of_round : seconds) run.step_seconds.insert(run.step_seconds.end(), 10, of_round);
  run.steps = static_cast<std::int64_t>(run.step_seconds.size());
  const std::vector<Range> counted = counted_steps(take_turns(1, run.steps), 0);
  run.times =
      summarize_iterations(run.step_seconds, std::vector<double>(run.step_seconds.size(), exposed), counted);
  return run;
}

TEST(Comparison, SpeedUpIsTheMedianOverRoundsOfRatiosInOneRound) {
  // The machine is slower in every round, and every policy with it: the ratio stays. Round 0 does not count.
  const std::vector<TrainResult> runs = {run_of("serial", {7, 2, 4, 6}, 0), run_of("dear", {9, 1, 2, 3}, 0)};
  const Comparison found = compare(runs, take_turns(2, 40));
  EXPECT_EQ(found.rounds, 4U);
  EXPECT_EQ(found.counted_rounds, 3U);
  ASSERT_EQ(found.speed_ups.size(), 2U);
  EXPECT_EQ(found.speed_ups[0].policy, "serial");
  EXPECT_DOUBLE_EQ(found.speed_ups[0].ratio.median, 1);
  EXPECT_EQ(found.speed_ups[1].policy, "dear");
  EXPECT_DOUBLE_EQ(found.speed_ups[1].ratio.first, 2);
  EXPECT_DOUBLE_EQ(found.speed_ups[1].ratio.median, 2);
  EXPECT_DOUBLE_EQ(found.speed_ups[1].ratio.third, 2);
}

TEST(Comparison, QuartilesAreOfRounds) {
  const std::vector<TrainResult> runs = {run_of("serial", {1, 4, 4, 4, 4, 4}, 0),
                                         run_of("dear", {1, 4, 2, 1, 1, 4}, 0)};
  const Quartiles ratio = compare(runs, take_turns(2, 60)).speed_ups[1].ratio;  // of 1, 2, 4, 4, 1
  EXPECT_DOUBLE_EQ(ratio.first, 1);
  EXPECT_DOUBLE_EQ(ratio.median, 2);
  EXPECT_DOUBLE_EQ(ratio.third, 4);
}

TEST(Comparison, InARoundTheMedianOfTheStepsThatCount) {
  std::vector<TrainResult> runs = {run_of("serial", {8, 8}, 0), run_of("dear", {4, 4}, 0)};
  for (const std::size_t i : {10, 11, 14, 19}) runs[1].step_seconds[i] = 100;  // a switch, and two stalls
  EXPECT_DOUBLE_EQ(compare(runs, take_turns(2, 20)).speed_ups[1].ratio.median, 2);
}

TEST(Comparison, AQuietMachineHasNoRemark) {
  const Comparison found =
      compare({run_of("serial", {3, 3}, 2), run_of("dear", {1.25, 1.25}, 0.2)}, take_turns(2, 20));
  EXPECT_TRUE(found.quiet);
  EXPECT_EQ(found.remark, "");
}

TEST(Comparison, ComputationThatDiffersByMoreThanATenthSaysThatTheMachineWasNotQuiet) {
  const Comparison found =
      compare({run_of("wfbp", {0.150, 0.150}, 0.05), run_of("serial", {0.267, 0.267}, 0.1),
               run_of("dear", {0.123, 0.123}, 0.036)},
              take_turns(3, 20));
  EXPECT_FALSE(found.quiet);
  EXPECT_THAT(found.remark, AllOf(HasSubstr("not quiet"), HasSubstr("167 ms under serial"),
                                  HasSubstr("87 ms under dear"), HasSubstr("Do not trust the speed-ups")));
}

TEST(Comparison, ATenthIsTheBorder) {
  const std::vector<Turn> turns = take_turns(2, 10);
  EXPECT_TRUE(compare({run_of("a", {1.0}, 0), run_of("b", {1.09}, 0)}, turns).quiet);
  EXPECT_FALSE(compare({run_of("a", {1.0}, 0), run_of("b", {1.11}, 0)}, turns).quiet);
  EXPECT_FALSE(compare({run_of("a", {1.11}, 0), run_of("b", {1.0}, 0)}, turns).quiet);
}

TEST(Comparison, OnePolicyAloneIsAsFastAsItself) {
  const Comparison found = compare({run_of("dear", {2, 2}, 0)}, take_turns(1, 20));
  EXPECT_DOUBLE_EQ(found.speed_ups.at(0).ratio.median, 1);
  EXPECT_TRUE(found.quiet);
}

}  // namespace
}  // namespace dear::train_command::train_comparison_test
