#include "dear/predict/balance/shard_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::shard_weights_test {
namespace {

using ::testing::DoubleEq;
using ::testing::Each;

constexpr double kNever = std::numeric_limits<double>::infinity();

// The least of all shares on a grid of 1/n, of three ranks.
double by_trial(const std::vector<RankSpeed>& ranks, ShardUse use, int n) {
  double best = kNever;
  for (int a = 0; a <= n; ++a)
    for (int b = 0; a + b <= n; ++b)
      best = std::min(best, seconds_of_shards(ranks, {1.0 * a, 1.0 * b, 1.0 * (n - a - b)}, use));
  return best;
}

TEST(ShardWeights, OfALinkOfAThirdOfTheOthers) {
  const std::vector<RankSpeed> ranks{{3, 3}, {3, 3}, {1, 1}};
  // All-reduced: each way 1 + s of the model; a third of it takes the slow link 4/3, none of it 1.
  const ShardPlan reduced = plan_shards(ranks, ShardUse::all_reduced);
  EXPECT_NEAR(reduced.equal_seconds, 4.0 / 3, 1e-12);
  EXPECT_NEAR(reduced.seconds, 1, 1e-9);
  EXPECT_NEAR(reduced.weights[2], 0, 1e-9);
  // Scattered: 1 - s one way and 2 s the other, both a third at best.
  const ShardPlan scattered = plan_shards(ranks);
  EXPECT_NEAR(scattered.seconds, 4.0 / 3, 1e-9);
  EXPECT_THAT(scattered.weights, Each(DoubleEq(1.0 / 3)));
}

TEST(ShardWeights, OfASlowUplinkAndOfASlowUpdate) {
  // To reduce takes 1 - s of sending, and to gather 2 s, or what the quick ones send: 2 (1 - s) / 2 / 100.
  const ShardPlan uplink = plan_shards({{100, 100}, {100, 100}, {1, 100}});
  EXPECT_NEAR(uplink.equal_seconds, 4.0 / 3, 1e-12);
  EXPECT_NEAR(uplink.weights[2], 1.0 / 201, 1e-6);
  EXPECT_NEAR(uplink.seconds, 202.0 / 201, 1e-6);
  const ShardPlan update = plan_shards({{kNever, kNever, 3}, {kNever, kNever, 1}});
  EXPECT_NEAR(update.weights[0], 0.75, 1e-9);
  EXPECT_NEAR(update.seconds, 0.25, 1e-9);
  EXPECT_NEAR(update.equal_seconds, 0.5, 1e-12);
}

TEST(ShardWeights, AreTheBestOfAllOfAGrid) {
  std::mt19937 random(3);
  const auto draw = [&] { return 0.2 + static_cast<double>(random() % 1000) / 250; };
  for (int trial = 0; trial < 12; ++trial) {
    std::vector<RankSpeed> ranks;
    for (int rank = 0; rank < 3; ++rank) ranks.push_back({draw(), draw(), 3 * draw()});
    for (const ShardUse use : {ShardUse::scattered, ShardUse::all_reduced}) {
      const ShardPlan plan = plan_shards(ranks, use);
      const double best = by_trial(ranks, use, 200);
      EXPECT_LE(plan.seconds, best * (1 + 1e-6));
      EXPECT_GE(plan.seconds, best * 0.97) << "a grid of 1/200 is about so near";
      EXPECT_LE(plan.seconds, plan.equal_seconds);
    }
  }
}

TEST(ShardWeights, OfEqualRanksAndOfTwoThatAllReduceAreEqual) {
  EXPECT_THAT(plan_shards({{2, 2, 5}, {2, 2, 5}, {2, 2, 5}, {2, 2, 5}}).weights, Each(DoubleEq(0.25)));
  EXPECT_THAT(plan_shards({{2, 2}, {1, 1}}, ShardUse::all_reduced).weights, Each(DoubleEq(0.5)));
  EXPECT_THAT(plan_shards({{2, 2, 1}}).weights, Each(DoubleEq(1)));
  EXPECT_THAT(plan_shards({{}, {}, {}}).weights, Each(DoubleEq(1.0 / 3)));
}

TEST(ShardWeights, RefuseSpeedsThatAreNone) {
  EXPECT_THROW(static_cast<void>(plan_shards({})), ConfigError);
  EXPECT_THROW(static_cast<void>(plan_shards({{1, 1}, {0, 1}})), ConfigError);
  EXPECT_THROW(static_cast<void>(plan_shards({{1, -1}, {1, 1}})), ConfigError);
  EXPECT_THROW(static_cast<void>(plan_shards({{1, 1, std::nan("")}, {1, 1}})), ConfigError);
}

}  // namespace
}  // namespace dear::shard_weights_test
