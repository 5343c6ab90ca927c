#include "dear/methods/kfac/fusion.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::methods::kfac::fusion_test {
namespace {

using ::testing::ElementsAre;

struct Case {
  std::vector<ReadyFactor> factors;
  LinearCost cost;
};

// Dimensions and times as in convolutional networks: powers of two, from factors that are ready at once to
// ones that computation keeps apart.
Case random_case(std::uint64_t seed, std::size_t most) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  Case drawn;
  const std::size_t count = 1 + random() % most;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t dimension = std::int64_t{64} << (random() % 7);
    drawn.factors.push_back({dimension * (dimension + 1) / 2, 4e-3 * unit(random)});
  }
  drawn.cost = {.start_seconds = 5e-3 * unit(random), .seconds_per_element = 3e-9 * unit(random)};
  return drawn;
}

std::size_t total(const Groups& groups) {
  return std::accumulate(groups.begin(), groups.end(), std::size_t{0});
}

std::vector<Groups> all_groupings(std::size_t count) {
  std::vector<Groups> all;
  for (std::uint64_t borders = 0; borders < (std::uint64_t{1} << (count - 1)); ++borders) {
    Groups& groups = all.emplace_back(Groups{1});
    for (std::size_t i = 1; i < count; ++i)
      if ((borders >> (i - 1)) & 1) {
        groups.push_back(1);
      } else {
        ++groups.back();
      }
  }
  return all;
}

double best_of_all(const Case& drawn) {
  double best = INFINITY;
  for (const Groups& groups : all_groupings(drawn.factors.size()))
    best = std::min(best, finish_seconds(drawn.factors, groups, drawn.cost));
  return best;
}

// The fewest groups of the groupings that finish by `seconds`.
std::size_t fewest_groups(const Case& drawn, double seconds) {
  std::size_t fewest = drawn.factors.size();
  for (const Groups& groups : all_groupings(drawn.factors.size()))
    if (finish_seconds(drawn.factors, groups, drawn.cost) <= seconds * (1 + 1e-12))
      fewest = std::min(fewest, groups.size());
  return fewest;
}

TEST(Fusion, FinishesAsAPencilSays) {
  const std::vector<ReadyFactor> factors{{10, 1}, {20, 1}, {30, 5}};
  const LinearCost cost{.start_seconds = 2, .seconds_per_element = 0.1};
  // Ready at 1, 2, 7. Alone: 1 + 3 = 4, 4 + 4 = 8, 8 + 5 = 13. Together: 7 + 2 + 6 = 15.
  EXPECT_DOUBLE_EQ(finish_seconds(factors, each_alone(3), cost), 13);
  EXPECT_DOUBLE_EQ(finish_seconds(factors, all_together(3), cost), 15);
  // The first two: 2 + 2 + 3 = 7, then 7 + 5.
  EXPECT_DOUBLE_EQ(finish_seconds(factors, {2, 1}, cost), 12);
  EXPECT_THAT(fuse_exactly(factors, cost), ElementsAre(2, 1));
  EXPECT_THAT(fuse_by_rule(factors, cost), ElementsAre(2, 1));
  EXPECT_THAT(by_threshold(factors, 25), ElementsAre(2, 1));
  // Looked at every 2 s: those that are ready at 1 and 2, then that at 7.
  EXPECT_THAT(by_cycle(factors, 2, 100), ElementsAre(2, 1));
  EXPECT_THAT(by_cycle(factors, 2, 25), ElementsAre(1, 1, 1)) << "no group is larger than 25";
  EXPECT_THAT(by_cycle(factors, 10, 5), ElementsAre(1, 1, 1)) << "but for a single factor";
  EXPECT_THAT(by_cycle(factors, 10, 100), ElementsAre(3));
  EXPECT_DOUBLE_EQ(finish_seconds({}, {}, cost), 0);
  EXPECT_TRUE(fuse_exactly({}, cost).empty());
}

TEST(Fusion, TheExactOneIsTheBestOfAllGroupings) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const Case drawn = random_case(seed, 10);
    const Groups exact = fuse_exactly(drawn.factors, drawn.cost);
    ASSERT_EQ(total(exact), drawn.factors.size());
    EXPECT_NEAR(finish_seconds(drawn.factors, exact, drawn.cost), best_of_all(drawn), 1e-12);
    EXPECT_EQ(exact.size(), fewest_groups(drawn, best_of_all(drawn)));
  }
}

// The rule is at least as good as no fusion and as one group for all, and not the best in general.
TEST(Fusion, TheRuleIsNeverWorseThanNoFusionOrOneGroup) {
  double worst = 1;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    const Case drawn = random_case(seed, 60);
    const auto& [factors, cost] = drawn;
    const Groups rule = fuse_by_rule(factors, cost);
    ASSERT_EQ(total(rule), factors.size());
    const double finish = finish_seconds(factors, rule, cost);
    EXPECT_LE(finish, finish_seconds(factors, each_alone(factors.size()), cost) + 1e-12);
    EXPECT_LE(finish, finish_seconds(factors, all_together(factors.size()), cost) + 1e-12);
    const double best = finish_seconds(factors, fuse_exactly(factors, cost), cost);
    EXPECT_LE(best, finish + 1e-12);
    worst = std::max(worst, finish / best);
  }
  EXPECT_GT(worst, 1.01) << "then the rule would be optimal";
}

}  // namespace
}  // namespace dear::methods::kfac::fusion_test
