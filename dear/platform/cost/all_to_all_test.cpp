#include "dear/platform/cost/all_to_all.h"

#include <random>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/ring.h"

namespace dear::cost::all_to_all_test {
namespace {

using algorithm::PairBytes;

constexpr Link kLink{.alpha_seconds = 1, .beta_seconds_per_byte = 1};

PairBytes uniform(int ranks, std::int64_t bytes, int chunks) {
  PairBytes pairs{.ranks = ranks, .chunks = chunks, .bytes = {}};
  pairs.bytes.assign(static_cast<std::size_t>(ranks * ranks), bytes);
  return pairs;
}

// Round 1: 0 to 1 takes 11 s, 1 to 2 takes 3 s, 2 to 0 nothing. So 0 and 1 go on at 11 s, 2 at 3 s. Round 2:
// 2 to 1 takes 6 s, from 11 s on, and 0 to 2 and 1 to 0 carry nothing. What a rank keeps does not count.
TEST(AllToAllV, WaitsForEachPartnerAlone) {
  const PairBytes pairs{.ranks = 3, .chunks = 0, .bytes = {99, 10, 0, 0, 99, 2, 0, 5, 99}};
  EXPECT_DOUBLE_EQ(all_to_all_v_seconds(kLink, pairs), 17);
}

// Counts of two chunks are 16 bytes: two rounds of 17 s before.
TEST(AllToAllV, PaysForItsCounts) {
  const PairBytes pairs{.ranks = 3, .chunks = 2, .bytes = {99, 10, 0, 0, 99, 2, 0, 5, 99}};
  EXPECT_DOUBLE_EQ(all_to_all_v_seconds(kLink, pairs), 34 + 17);
  EXPECT_EQ(pairs.total(), 6 * 16 + 17);
}

TEST(AllToAllV, OfEqualBlocksIsAnAllToAll) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    EXPECT_NEAR(all_to_all_v_seconds(kLink, uniform(ranks, 50, 0)),
                pairwise_all_to_all_seconds(kLink, ranks, 50 * ranks), 1e-9);
    EXPECT_NEAR(all_to_all_v_seconds(kLink, uniform(ranks, 0, 3)),
                pairwise_all_to_all_seconds(kLink, ranks, 24 * ranks), 1e-9);
    EXPECT_EQ(all_to_all_v_seconds(kLink, uniform(ranks, 0, 0)), 0);
  }
}

// No rank ends before its own messages are through, and none takes longer than all messages one by one.
TEST(AllToAllV, LiesBetweenTheBusiestRankAndTheSum) {
  std::mt19937 generator(11);
  for (int trial = 0; trial < 200; ++trial) {
    const int ranks = 2 + trial % 7;
    PairBytes pairs = uniform(ranks, 0, 0);
    double sum = 0;
    double busiest = 0;
    for (int from = 0; from < ranks; ++from) {
      double out = 0;
      for (int to = 0; to < ranks; ++to) {
        const auto bytes = static_cast<std::int64_t>(generator() % 3 == 0 ? 0 : generator() % 1000);
        pairs.bytes[static_cast<std::size_t>(from * ranks + to)] = bytes;
        if (from != to && bytes > 0) out += 1 + static_cast<double>(bytes);
      }
      sum += out;
      busiest = std::max(busiest, out);
    }
    const double seconds = all_to_all_v_seconds(kLink, pairs);
    EXPECT_GE(seconds, busiest);
    EXPECT_LE(seconds, sum);
  }
}

// 4 ranks, 3 start-ups, and 3/4 of 400 bytes shared out among the parts.
TEST(PartOfAllToAll, IsUniformOfAPartOfTheCapacity) {
  EXPECT_DOUBLE_EQ(part_of_all_to_all_seconds(kLink, 4, 400, 1), 303);
  EXPECT_DOUBLE_EQ(part_of_all_to_all_seconds(kLink, 4, 400, 4), 78);
  EXPECT_DOUBLE_EQ(part_of_all_to_all_seconds(kLink, 1, 400, 4), 0);
}

TEST(AllToAllV, RefusesWhatCannotBe) {
  EXPECT_THROW(all_to_all_v_seconds(kLink, {.ranks = 2, .bytes = {1, 2, 3}}), ConfigError);
  EXPECT_THROW(all_to_all_v_seconds(kLink, {.ranks = 0, .bytes = {}}), ConfigError);
  EXPECT_THROW(all_to_all_v_seconds(kLink, {.ranks = 1, .bytes = {-1}}), ConfigError);
  EXPECT_THROW(part_of_all_to_all_seconds(kLink, 4, 400, 0), ConfigError);
  EXPECT_THROW(part_of_all_to_all_seconds(kLink, 4, -1, 1), ConfigError);
}

}  // namespace
}  // namespace dear::cost::all_to_all_test
