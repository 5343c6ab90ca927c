#include "dear/schedule/codec/draw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"

namespace dear::codec::draw_test {
namespace {

using ::testing::ElementsAre;

std::vector<std::uint32_t> subset_of(std::int64_t elements, std::size_t count, std::int64_t step) {
  std::vector<std::uint32_t> subset(count);
  SubsetDraw().draw(Draw(7, step, 11), elements, subset);
  return subset;
}

// Six standard deviations of a chi-square: seeds are fixed, so a failure is one for ever.
double most_chi_square(double freedom) { return freedom + 6 * std::sqrt(2 * freedom); }

TEST(Draw, GivesTheSameBitsOnEveryMachine) {
  Draw random(1, 2, 3);
  EXPECT_EQ(random.next(), 17935045397859436204ULL);
  EXPECT_EQ(random.below(1000), 492U);
  EXPECT_THAT(subset_of(100, 5, 0), ElementsAre(21, 48, 49, 87, 91));
}

TEST(Draw, DependsOnSeedStepKeyAndRank) {
  std::set<std::uint64_t> first;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (std::int64_t step = 0; step < 4; ++step) {
      for (std::uint64_t key = 0; key < 4; ++key) {
        for (int rank = Draw::kEveryRank; rank < 4; ++rank) first.insert(Draw(seed, step, key, rank).next());
      }
    }
  }
  EXPECT_EQ(first.size(), 4U * 4 * 4 * 5);
}

TEST(Draw, BelowGivesEachNumberEquallyOften) {
  for (const std::uint64_t limit : {1ULL, 2ULL, 3ULL, 7ULL, 10ULL, 64ULL}) {
    Draw random(1, 0, limit);
    std::vector<int> counts(limit);
    constexpr int kDraws = 100000;
    for (int i = 0; i < kDraws; ++i) ++counts.at(random.below(limit));
    const double expected = static_cast<double>(kDraws) / static_cast<double>(limit);
    double chi_square = 0;
    for (const int count : counts) chi_square += (count - expected) * (count - expected) / expected;
    EXPECT_LE(chi_square, most_chi_square(static_cast<double>(limit) - 1)) << limit;
  }
}

TEST(Draw, BelowReachesBothEndsOfLargeLimits) {
  // 3 x 2^30 numbers share 2^32: without redrawing every third would come twice as often as the others.
  constexpr std::uint64_t kLimit = 3ULL << 30;
  Draw random(1, 0, 0);
  std::array<int, 3> counts{};
  for (int i = 0; i < 30000; ++i) {
    const std::uint32_t number = random.below(kLimit);
    ASSERT_LT(number, kLimit);
    ++counts[number % 3];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  std::uint32_t most = 0;
  for (int i = 0; i < 30000; ++i) most = std::max(most, random.below(1ULL << 32));
  EXPECT_GT(most, 0xfff00000U);
}

TEST(Draw, UniformCoversItsInterval) {
  Draw random(1, 0, 0);
  double sum = 0;
  float least = 0, most = 0;
  for (int i = 0; i < 10000; ++i) {
    const float number = random.uniform();
    sum += number;
    least = std::min(least, number);
    most = std::max(most, number);
  }
  EXPECT_GE(least, -1);
  EXPECT_LT(least, -0.99F);
  EXPECT_LT(most, 1);
  EXPECT_GT(most, 0.99F);
  EXPECT_NEAR(sum / 10000, 0, 0.03);
}

TEST(SubsetDraw, IsAscendingAndDistinctForEverySize) {
  SubsetDraw subsets;  // of one size after the other, which must leave nothing behind
  for (const std::int64_t elements : {1, 2, 63, 64, 65, 127, 128, 129, 1000}) {
    for (std::int64_t count = 0; count <= elements; ++count) {
      std::vector<std::uint32_t> subset(static_cast<std::size_t>(count));
      subsets.draw(Draw(1, count, 2), elements, subset);
      for (std::size_t i = 1; i < subset.size(); ++i) ASSERT_LT(subset[i - 1], subset[i]);
      ASSERT_TRUE(subset.empty() || subset.back() < static_cast<std::uint64_t>(elements));
    }
  }
}

TEST(SubsetDraw, IsTheFirstDistinctNumbersOfTheSequence) {
  for (int round = 0; round < dear::testing::rounds(1000); ++round) {
    Draw random(7, round, 11);
    std::set<std::uint32_t> first;
    while (first.size() < 30) first.insert(random.below(100));
    EXPECT_THAT(subset_of(100, 30, round), ::testing::ElementsAreArray(first));
  }
}

TEST(SubsetDraw, GivesEachSubsetEquallyOften) {
  for (const std::size_t size : {1U, 2U, 3U, 5U, 6U}) {
    std::map<std::vector<std::uint32_t>, int> counts;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) ++counts[subset_of(7, size, i)];
    const double subsets = std::round(std::tgamma(8) / std::tgamma(size + 1) / std::tgamma(8 - size));
    ASSERT_EQ(static_cast<double>(counts.size()), subsets);
    double chi_square = 0;
    for (const auto& [subset, count] : counts) {
      const double expected = kDraws / subsets;
      chi_square += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LE(chi_square, most_chi_square(subsets - 1)) << size;
  }
}

}  // namespace
}  // namespace dear::codec::draw_test
