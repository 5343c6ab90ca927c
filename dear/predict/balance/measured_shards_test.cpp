#include "dear/predict/balance/measured_shards.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Speeds = std::vector<RankSpeed>;

const std::vector<double> kEqual{1.0 / 3, 1.0 / 3, 1.0 / 3};
constexpr ShardMeasuring kMeasuring{.window = 4, .drift = 1.2, .least_gain = 1.05, .most_cost = 0.02};

Speeds one_slow(double slow) {
  return {{.send = 30, .receive = 30}, {.send = 30, .receive = 30}, {.send = slow, .receive = slow}};
}

TEST(MeasuredShards, AreMeasuredFirstAndWhenAStepDrifts) {
  MeasuredShards shards(kMeasuring, kEqual);
  ASSERT_TRUE(shards.wants_speeds(4, 1.0));
  EXPECT_FALSE(shards.measured(one_slow(30), ShardUse::all_reduced, 0.01));  // alike
  EXPECT_THAT(shards.weights(), ElementsAre(kEqual[0], kEqual[1], kEqual[2]));
  EXPECT_FALSE(shards.wants_speeds(8, 1.0));   // says what a step takes
  EXPECT_FALSE(shards.wants_speeds(12, 1.1));  // within the drift
  EXPECT_TRUE(shards.wants_speeds(16, 1.3));
  const auto slower = shards.measured(one_slow(10), ShardUse::all_reduced, 0.01);
  ASSERT_TRUE(slower);
  EXPECT_LT(slower->weights[2], 0.01);
  EXPECT_GT(slower->weights[0], 0.45);
  // A step is quicker with the new shards: that is no drift.
  EXPECT_FALSE(shards.wants_speeds(20, 0.9));
  EXPECT_FALSE(shards.wants_speeds(24, 0.9));
  // The link recovers, and so do the shards.
  EXPECT_TRUE(shards.wants_speeds(28, 0.7));
  const auto again = shards.measured(one_slow(30), ShardUse::all_reduced, 0.01);
  ASSERT_TRUE(again);
  EXPECT_NEAR(again->weights[2], 1.0 / 3, 1e-6);
}

TEST(MeasuredShards, AreNotMeasuredMoreOftenThanTheCostAllows) {
  MeasuredShards shards(kMeasuring, kEqual);
  ASSERT_TRUE(shards.wants_speeds(4, 1.0));
  EXPECT_FALSE(shards.measured(one_slow(30), ShardUse::all_reduced, 2.0));  // 100 steps' worth of 2 %
  EXPECT_FALSE(shards.wants_speeds(8, 1.0));
  for (int step = 12; step < 104; step += 4) EXPECT_FALSE(shards.wants_speeds(step, 2.0)) << step;
  EXPECT_TRUE(shards.wants_speeds(104, 2.0));
}

TEST(MeasuredShards, TakeUnknownSpeedsAsTheMeanOfTheOthers) {
  MeasuredShards shards(kMeasuring, {0.5, 0.5});
  ASSERT_TRUE(shards.wants_speeds(4, 1.0));
  const auto plan =
      shards.measured({{.send = 1e9, .receive = 1e9, .update = 3}, {.send = 0, .receive = 0, .update = 1}},
                      ShardUse::scattered, 0);
  ASSERT_TRUE(plan);
  EXPECT_NEAR(plan->weights[0], 0.75, 1e-3);
  EXPECT_FALSE(
      shards.measured({{.send = 0, .receive = 0, .update = 0}, {.send = 0, .receive = 0, .update = 0}},
                      ShardUse::scattered, 0));
}

TEST(MeasuredShards, RefuseWhatIsNoMeasuring) {
  for (const ShardMeasuring& wrong :
       {ShardMeasuring{.window = 0}, ShardMeasuring{.drift = 1}, ShardMeasuring{.least_gain = 0.5},
        ShardMeasuring{.most_cost = 0}, ShardMeasuring{.drift = std::nan("")}}) {
    try {
      static_cast<void>(MeasuredShards(wrong, kEqual));
      ADD_FAILURE() << "not refused";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("a drift above 1"));
    }
  }
}

}  // namespace
}  // namespace dear
