#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/platform/cost/chunk_planner.h"

namespace dear::cost {
namespace {

ChunkNetwork two_dimensions(double first_rate, double second_rate) {
  return chunk_network(
      {.name = "made",
       .dimensions = {
           {.name = "inside", .size = 2, .link = {0, 1 / first_rate}},
           {.name = "across", .size = 2, .link = {0, 1 / second_rate}, .links = 2, .beside = true}}});
}

// Two chunks of 4 bytes over two equal dimensions: each takes 2 seconds where it goes first and 1 where it
// goes then. In opposite orders both end after 3.
TEST(ChunkSearch, FindsWhatThePencilFinds) {
  const auto best = best_chunk_plan(two_dimensions(1, 1), Collective::reduce_scatter, 8, 2, 1000);
  ASSERT_TRUE(best);
  EXPECT_DOUBLE_EQ(best->seconds, 3);
  EXPECT_DOUBLE_EQ(play(best->plan, two_dimensions(1, 1)).seconds, 3);
}

TEST(ChunkSearch, NoMakerIsFaster) {
  std::mt19937 random(5);
  double most = 1;
  for (int i = 0; i < 40; ++i) {
    const ChunkNetwork network = two_dimensions(1 + random() % 8, 1 + random() % 8);
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_reduce}) {
      const auto best = best_chunk_plan(network, collective, 1 << 16, 3, 1'000'000);
      ASSERT_TRUE(best);
      EXPECT_NEAR(play(best->plan, network).seconds, best->seconds, 1e-9 * best->seconds);
      EXPECT_GE(best->seconds, ideal_seconds(network, collective, 1 << 16) * (1 - 1e-12));
      for (const ChunkPlanner& planner : chunk_planners()) {
        const PlannedChunks made = make_chunk_plan(network, collective, 1 << 16,
                                                   {.algorithm = std::string(planner.name), .chunks = 3});
        if (made.plan.chunks() != 3) continue;
        EXPECT_GE(made.seconds, best->seconds * (1 - 1e-9)) << planner.name;
        if (planner.name == "themis") most = std::max(most, made.seconds / best->seconds);
      }
    }
  }
  EXPECT_LT(most, 1.25);  // the best maker is near the optimum, even in 3 chunks
}

TEST(ChunkSearch, GivesUpWhenItIsTooLong) {
  EXPECT_FALSE(best_chunk_plan(two_dimensions(1, 3), Collective::all_reduce, 1 << 20, 6, 50));
}

}  // namespace
}  // namespace dear::cost
