#include "dear/predict/balance/batch_shares.h"

#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::batch_shares_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Counts = std::vector<std::int64_t>;

std::string refusal(const Balance& balance, int ranks) {
  try {
    const BatchShares made(balance, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(BatchShares, AreWholeNumbersByTheLargestRemainders) {
  EXPECT_EQ(split(12, {1, 1, 1}), (Counts{4, 4, 4}));
  EXPECT_EQ(split(10, {1, 1, 1}), (Counts{4, 3, 3}));
  EXPECT_EQ(split(10, {2, 1}), (Counts{7, 3})) << "6.67 and 3.33";
  EXPECT_EQ(split(7, {0.5, 0.25, 0.25}), (Counts{3, 2, 2})) << "3.5, 1.75, 1.75";
  EXPECT_EQ(split(64, {1, 3}), (Counts{16, 48}));
  EXPECT_EQ(split(0, {1, 3}), (Counts{0, 0}));
}

TEST(BatchShares, GiveEachRankASampleWhereThereAreSoMany) {
  EXPECT_EQ(split(8, {1000, 1, 1}), (Counts{6, 1, 1}));
  EXPECT_EQ(split(3, {1000, 1, 1}), (Counts{1, 1, 1}));
  EXPECT_EQ(split(2, {1000, 1, 1}), (Counts{2, 0, 0}));
}

TEST(BatchShares, AddUpToTheBatchAndAreOffByLessThanOne) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<double> weights(1 + random() % 9);
    for (double& weight : weights) weight = 0.3 + static_cast<double>(random() % 1000) / 1000;
    const std::int64_t samples = 64 + random() % 5000;
    const Counts counts = split(samples, weights);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), samples);
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t rank = 0; rank < counts.size(); ++rank)
      EXPECT_LT(std::abs(static_cast<double>(counts[rank]) - samples * weights[rank] / all), 1);
  }
}

TEST(BatchShares, OfWeightsStay) {
  BatchShares shares({.weights = {3, 1}}, 2);
  EXPECT_THAT(shares.fractions(), ElementsAre(0.75, 0.25));
  for (int step = 0; step < 50; ++step) shares.end_step({1, 9});
  EXPECT_THAT(shares.fractions(), ElementsAre(0.75, 0.25));
  EXPECT_EQ(shares.counts(8, 1000), (Counts{6, 2}));
  EXPECT_EQ(shares.changes(), 0);
}

TEST(BatchShares, FollowMeasuredSpeedsAfterTheStepsThatLoadersReadAhead) {
  BatchShares shares({.window = 4, .ahead = 3}, 2);
  // Steps 0 to 2 do not count; one of the four that do is an outlier.
  const std::vector<std::vector<double>> said{{0, 0},   {1, 9},    {1, 9},  {100, 50},
                                              {100, 1}, {100, 50}, {90, 50}};
  for (const auto& rates : said) {
    EXPECT_EQ(shares.counts(12, shares.steps() + 3), (Counts{6, 6}));
    shares.end_step(rates);
  }
  // Decided as step 6 ended: loaders may have drawn the batches of steps up to 9.
  EXPECT_EQ(shares.changes(), 1);
  EXPECT_THAT(shares.fractions(), ElementsAre(0.5, 0.5));
  EXPECT_EQ(shares.counts(12, 9), (Counts{6, 6}));
  EXPECT_EQ(shares.counts(12, 10), (Counts{8, 4}));
  for (int step = 7; step < 10; ++step) shares.end_step({1, 1});
  EXPECT_THAT(shares.fractions(), ElementsAre(2.0 / 3, 1.0 / 3));
}

TEST(BatchShares, FindTheBalanceOfRanksWithCostsOfEachStep) {
  // A step takes a rank 2 s and 4 s, and 10 ms and 30 ms a sample more: with 150 and 50 of 200 it would be
  // 3.5 s and 5.5 s, and at the balance 200 + 2 x = ... seconds of both are alike.
  BatchShares shares({.window = 2, .least_gain = 1.001, .ahead = 0}, 2);
  const auto seconds = [&](int rank, std::int64_t samples) {
    return rank == 0 ? 2 + 0.010 * static_cast<double>(samples) : 4 + 0.030 * static_cast<double>(samples);
  };
  std::vector<double> last{0, 0};
  for (int step = 0; step < 100; ++step) {
    const Counts counts = shares.counts(200, step);
    shares.end_step(last);
    for (int rank = 0; rank < 2; ++rank)
      last[rank] = static_cast<double>(counts[rank]) / seconds(rank, counts[rank]);
  }
  // 2 + 0.01 n = 4 + 0.03 (200 - n) at n = 200: rank 1 keeps the one sample that each rank gets.
  const Counts found = shares.counts(200, 100);
  EXPECT_GE(found[0], 190);
  EXPECT_GE(found[1], 1);
}

TEST(BatchShares, StayForSmallDriftsAndForRanksThatSayNothing) {
  BatchShares shares({.window = 2, .least_gain = 1.05, .ahead = 0}, 2);
  for (int step = 0; step < 40; ++step) shares.end_step({103, 100});
  EXPECT_EQ(shares.changes(), 0);
  for (int step = 0; step < 40; ++step) shares.end_step({300, 0});
  for (int step = 0; step < 40; ++step) shares.end_step({});
  EXPECT_EQ(shares.changes(), 0);
  for (int step = 0; step < 40; ++step) shares.end_step({300, 100});
  EXPECT_EQ(shares.changes(), 1);
  EXPECT_THAT(shares.fractions(), ElementsAre(0.75, 0.25));
}

TEST(BatchShares, RefuseWhatTheyCannotBe) {
  EXPECT_THAT(refusal({.weights = {1, 1}}, 3), HasSubstr("2 weights for 3 ranks"));
  EXPECT_THAT(refusal({.weights = {1, -1}}, 2), HasSubstr("-1 for rank 1"));
  EXPECT_THAT(refusal({.weights = {0, 0}}, 2), HasSubstr("0 for rank 0"));
  EXPECT_THAT(refusal({.weights = {1, std::nan("")}}, 2), HasSubstr("nan for rank 1"));
  EXPECT_THAT(refusal({.weights = {1, std::numeric_limits<double>::infinity()}}, 2), HasSubstr("inf"));
  EXPECT_THAT(refusal({.window = 0}, 2), HasSubstr("window 0"));
  EXPECT_THAT(refusal({.least_gain = 0.5}, 2), HasSubstr("0.5"));
  EXPECT_THAT(refusal({.ahead = -1}, 2), HasSubstr("-1"));
  const BatchShares shares({.ahead = 2}, 2);
  EXPECT_THROW(static_cast<void>(shares.counts(8, 3)), ConfigError);
  EXPECT_THROW(static_cast<void>(shares.counts(-1, 0)), ConfigError);
  EXPECT_NE(text_of({}), text_of({.window = 9}));
  EXPECT_NE(text_of({.weights = {1, 2}}), text_of({.weights = {1, 3}}));
}

}  // namespace
}  // namespace dear::batch_shares_test
