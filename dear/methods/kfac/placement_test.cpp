#include "dear/methods/kfac/placement.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/kfac/costs.h"

namespace dear::methods::kfac::placement_test {
namespace {

using ::testing::ElementsAre;

std::vector<Factor> with_dimensions(const std::vector<std::int64_t>& dimensions) {
  std::vector<Factor> factors;
  for (const std::int64_t dimension : dimensions)
    factors.push_back({static_cast<LayerId>(factors.size()), Side::input, dimension});
  return factors;
}

// Inverses take as many seconds as their dimension; broadcasts what `sending` says.
PlacementCosts linear(double sending) {
  return {.invert = [](std::int64_t dimension) { return static_cast<double>(dimension); },
          .distribute = [sending](std::int64_t) { return sending; }};
}

TEST(Placement, BalancesByTimeAndSendsWhatPays) {
  const std::vector<Factor> factors = with_dimensions({7, 1, 5, 4, 2, 3});
  // 1 and 2 take no longer than to be sent. By descending time: 7, 5, 4, 3.
  EXPECT_THAT(balanced(factors, 2, linear(2)), ElementsAre(0, std::nullopt, 1, 1, std::nullopt, 0));
  EXPECT_EQ(balanced(factors, 1, linear(2)), all_local(6));
  EXPECT_THAT(round_robin(3, 2), ElementsAre(0, 1, 0));
  EXPECT_THROW(balanced(factors, 0, linear(2)), ConfigError);
}

TEST(Placement, PhasesAsAPencilSays) {
  const std::vector<Factor> factors = with_dimensions({7, 1, 5, 4, 2, 3});
  const InversePhase local = inverse_phase(factors, all_local(6), 2, linear(2));
  EXPECT_DOUBLE_EQ(local.compute_seconds, 22);
  EXPECT_DOUBLE_EQ(local.communicate_seconds, 0);
  EXPECT_DOUBLE_EQ(local.finish_seconds, 22);
  // Rank 0: 7, 3, then 2 and 1; rank 1: 5, 4, then 2 and 1. Sent in the order 7, 5, 4, 3: 7 to 9, 9 to 11,
  // 11 to 13, 13 to 15.
  const InversePhase shared = inverse_phase(factors, balanced(factors, 2, linear(2)), 2, linear(2));
  EXPECT_DOUBLE_EQ(shared.compute_seconds, 13);
  EXPECT_DOUBLE_EQ(shared.communicate_seconds, 8);
  EXPECT_DOUBLE_EQ(shared.finish_seconds, 15);
  EXPECT_THROW(inverse_phase(factors, all_local(5), 2, linear(2)), ConfigError);
  EXPECT_THROW(inverse_phase(with_dimensions({1}), {5}, 2, linear(2)), ConfigError);
}

// Six inverses of 5 s, of which each takes 4.9 s to be sent: one by one that pays, but the first broadcast
// begins after 5 s, and six of them end after 34.4 s. Six inverses take every rank 30 s.
TEST(Placement, WhatPaysOneByOneMayNotPayTogether) {
  const auto finish = [](const std::vector<Factor>& factors, const Placement& placement, double sending) {
    return inverse_phase(factors, placement, 2, linear(sending)).finish_seconds;
  };
  const std::vector<Factor> few = with_dimensions(std::vector<std::int64_t>(6, 5));
  EXPECT_GT(finish(few, balanced(few, 2, linear(4.9)), 4.9), finish(few, all_local(6), 4.9));
  const Placement fastest = fastest_phase(few, 2, linear(4.9));
  EXPECT_LT(finish(few, fastest, 4.9), finish(few, all_local(6), 4.9)) << "some are sent, and some are not";
  EXPECT_EQ(fastest_phase(few, 1, linear(4.9)), all_local(6));
  const std::vector<Placement> candidates = placements_to_play(few, 2, linear(4.9));
  EXPECT_THAT(candidates,
              ::testing::UnorderedElementsAre(balanced(few, 2, linear(4.9)), fastest, all_local(6)))
      << "round robin deals equal inverses as balance does";
}

TEST(Placement, TheFastestPhaseIsNeverSlowerThanAllLocalOrRoundRobin) {
  int balance_lost = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    std::mt19937_64 random(seed);
    const int ranks = 2 << (random() % 6);
    std::vector<std::int64_t> dimensions;
    for (std::size_t i = 2 + random() % 50; i > 0; --i)
      dimensions.push_back(1 + static_cast<std::int64_t>(random() % 40));
    const std::vector<Factor> factors = with_dimensions(dimensions);
    const PlacementCosts costs = linear(static_cast<double>(random() % 40));
    const auto finish = [&](const Placement& placement) {
      return inverse_phase(factors, placement, ranks, costs).finish_seconds;
    };
    const double plain =
        std::min(finish(all_local(factors.size())), finish(round_robin(factors.size(), ranks)));
    ASSERT_LE(finish(fastest_phase(factors, ranks, costs)), plain) << seed;
    balance_lost += finish(balanced(factors, ranks, costs)) > plain ? 1 : 0;
  }
  EXPECT_GT(balance_lost, 0);
}

double best_makespan(const std::vector<double>& seconds, std::vector<double>& load, std::size_t next) {
  if (next == seconds.size()) return *std::max_element(load.begin(), load.end());
  double best = INFINITY;
  for (double& rank : load) {
    rank += seconds[next];
    best = std::min(best, best_makespan(seconds, load, next + 1));
    rank -= seconds[next];
    if (rank == 0) break;  // other empty ranks are alike
  }
  return best;
}

TEST(Placement, IsWithinGrahamsBoundOfTheBestLoad) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 3);
    std::vector<std::int64_t> dimensions;
    for (std::size_t i = 1 + random() % 9; i > 0; --i)
      dimensions.push_back(1 + static_cast<std::int64_t>(random() % 40));
    const std::vector<Factor> factors = with_dimensions(dimensions);
    const PlacementCosts costs = linear(0);  // everything is sent
    std::vector<double> seconds, load(index_of(ranks));
    for (const std::int64_t dimension : dimensions) seconds.push_back(costs.invert(dimension));
    const double bound = 4.0 / 3 - 1.0 / (3 * ranks);
    EXPECT_LE(inverse_phase(factors, balanced(factors, ranks, costs), ranks, costs).compute_seconds,
              bound * best_makespan(seconds, load, 0) + 1e-9);
  }
}

}  // namespace
}  // namespace dear::methods::kfac::placement_test
