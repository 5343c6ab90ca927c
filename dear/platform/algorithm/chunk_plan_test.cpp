#include "dear/platform/algorithm/chunk_plan.h"

#include <algorithm>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/testing/chunk_plans.h"
#include "dear/platform/algorithm/testing/verify.h"

namespace dear::algorithm {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing::verify;

ChunkPlan random_plan(const Grid& grid, Collective collective, int chunks, std::mt19937& random) {
  ChunkPlan plan = testing::empty_chunk_plan(grid, collective);
  testing::add_random_chunks(plan, chunks, 1000, random);
  return plan;
}

TEST(ChunkPlan, EveryPlanIsProven) {
  std::mt19937 random(7);
  for (const Grid& grid :
       {Grid{{4}}, Grid{{2, 2}}, Grid{{4, 2}}, Grid{{2, 2, 2}}, Grid{{3, 1, 2}}, Grid{{4, 4, 2}}}) {
    for (const Collective collective :
         {Collective::reduce_scatter, Collective::all_gather, Collective::all_reduce}) {
      for (const int chunks : {1, 3, 8}) {
        const ChunkPlan plan = random_plan(grid, collective, chunks, random);
        EXPECT_NO_THROW(validate(plan));
        EXPECT_NO_THROW(verify(program_of(plan))) << plan.name;
      }
    }
  }
}

TEST(ChunkPlan, PhasesFollowTheOrderAndThenItsReverse) {
  const ChunkPlan plan{.name = "by hand",
                       .collective = Collective::all_reduce,
                       .grid = {{2, 4}},
                       .algorithms = {"ring", "ring"},
                       .lanes = {0, 1},
                       .chunk_bytes = {800},
                       .orders = {{1, 0}},
                       .service = {{{0, 1}, {0, 2}}, {{0, 0}, {0, 3}}}};
  validate(plan);
  ASSERT_EQ(plan.steps(), 4);
  const auto phase = [](int step) { return ChunkPhase{.chunk = 0, .step = step}; };
  const std::vector<std::pair<int, double>> expected{{1, 800}, {0, 200}, {0, 200}, {1, 800}};
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(plan.dimension_of(phase(step)), expected[static_cast<std::size_t>(step)].first);
    EXPECT_EQ(plan.bytes_of(phase(step)), expected[static_cast<std::size_t>(step)].second);
    EXPECT_EQ(plan.collective_of(phase(step)),
              step < 2 ? Collective::reduce_scatter : Collective::all_gather);
  }
}

TEST(ChunkPlan, TheDigestTellsPlansApart) {
  std::mt19937 random(1);
  const ChunkPlan plan = random_plan({{2, 4}}, Collective::all_reduce, 4, random);
  ChunkPlan same = plan;
  same.name = "another name";
  EXPECT_EQ(digest(plan), digest(same));
  const std::vector<std::function<void(ChunkPlan&)>> changes{
      [](ChunkPlan& other) { other.collective = Collective::reduce_scatter; },
      [](ChunkPlan& other) { std::swap(other.grid.sizes[0], other.grid.sizes[1]); },
      [](ChunkPlan& other) { other.algorithms[1] = "direct"; },
      [](ChunkPlan& other) { other.lanes[1] = 0; },
      [](ChunkPlan& other) { ++other.chunk_bytes[3]; },
      [](ChunkPlan& other) { std::swap(other.orders[0][0], other.orders[0][1]); },
      [](ChunkPlan& other) { std::swap(other.service[0][0], other.service[0][1]); }};
  for (const auto& change : changes) {
    ChunkPlan other = plan;
    change(other);
    EXPECT_NE(digest(plan), digest(other));
  }
}

TEST(ChunkPlan, RefusesWhatWouldWaitInACircle) {
  ChunkPlan plan{.name = "circle",
                 .collective = Collective::reduce_scatter,
                 .grid = {{2, 2}},
                 .algorithms = {"ring", "ring"},
                 .lanes = {0, 1},
                 .chunk_bytes = {64, 64},
                 .orders = {{0, 1}, {1, 0}},
                 .service = {{{0, 0}, {1, 1}}, {{1, 0}, {0, 1}}}};
  EXPECT_NO_THROW(validate(plan));
  std::swap(plan.service[0][0], plan.service[0][1]);
  EXPECT_NO_THROW(validate(plan));
  std::swap(plan.service[1][0], plan.service[1][1]);
  EXPECT_THAT([&] { validate(plan); }, ThrowsMessage<ScheduleError>(HasSubstr("circle")));
}

TEST(ChunkPlan, RefusesWhatIsIncomplete) {
  std::mt19937 random(3);
  const ChunkPlan good = random_plan({{2, 3}}, Collective::all_reduce, 3, random);
  const std::vector<std::pair<std::string, std::function<void(ChunkPlan&)>>> schedule_errors{
      {"chunk 1", [](ChunkPlan& plan) { plan.orders[1] = {0, 0}; }},
      {"served 0 times", [](ChunkPlan& plan) { plan.service[0].pop_back(); }},
      {"served 2 times", [](ChunkPlan& plan) { plan.service[0].push_back(plan.service[0].front()); }},
      {"lane 0", [](ChunkPlan& plan) { std::swap(plan.service[0], plan.service[1]); }},
      {"step 9", [](ChunkPlan& plan) { plan.service[1][0].step = 9; }}};
  for (const auto& [words, change] : schedule_errors) {
    ChunkPlan plan = good;
    change(plan);
    EXPECT_THAT([&] { validate(plan); }, ThrowsMessage<ScheduleError>(HasSubstr(words)));
  }
  const std::vector<std::function<void(ChunkPlan&)>> config_errors{
      [](ChunkPlan& plan) { plan.collective = Collective::broadcast; },
      [](ChunkPlan& plan) { plan.grid.sizes.clear(); },
      [](ChunkPlan& plan) { plan.algorithms.pop_back(); },
      [](ChunkPlan& plan) { plan.algorithms[0] = "telepathy"; },
      [](ChunkPlan& plan) { plan.lanes[0] = 2; },
      [](ChunkPlan& plan) { plan.chunk_bytes[2] = -1; },
      [](ChunkPlan& plan) { plan.chunk_bytes.clear(); }};
  for (const auto& change : config_errors) {
    ChunkPlan plan = good;
    change(plan);
    EXPECT_THROW(validate(plan), ConfigError);
  }
}

}  // namespace
}  // namespace dear::algorithm
