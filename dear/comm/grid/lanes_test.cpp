#include "dear/comm/grid/lanes.h"

#include <map>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/comm/grid/grid_in_test.h"

namespace dear::grid {
namespace {

using algorithm::ChunkPhase;
using algorithm::ChunkPlan;
using algorithm::Grid;
using grid_in_test::random_plan;

void ignore(const std::exception& /*error*/) {}

TEST(Lanes, ServeEveryPhaseAfterWhatItWaitsFor) {
  Lanes lanes(3);
  for (unsigned seed = 0; seed < 40; ++seed) {
    const ChunkPlan plan = random_plan({{2, 2, 2}}, Collective::all_reduce, 1000,
                                       {.chunks = 6, .seed = seed, .one_lane = seed % 5 == 0});
    std::mutex mutex;
    std::map<int, int> steps;
    std::map<int, std::vector<ChunkPhase>> served;
    lanes.run(
        plan,
        [&](ChunkPhase phase, SteadyTime ready) {
          EXPECT_LE(ready, SteadyClock::now());
          for (unsigned pause = 0; pause < (seed + static_cast<unsigned>(phase.step)) % 4; ++pause)
            std::this_thread::yield();
          const std::lock_guard lock(mutex);
          EXPECT_EQ(steps[phase.chunk]++, phase.step);
          served[plan.lanes[static_cast<std::size_t>(plan.dimension_of(phase))]].push_back(phase);
        },
        ignore);
    for (int lane = 0; lane < static_cast<int>(plan.service.size()); ++lane) {
      EXPECT_EQ(served[lane], plan.service[static_cast<std::size_t>(lane)]);
    }
  }
}

TEST(Lanes, OfOneChunkAreTheCallingThread) {
  Lanes lanes(2);
  int phases = 0;
  lanes.run(
      random_plan({{2, 2}}, Collective::all_reduce, 100, {.chunks = 1}),
      [&, here = std::this_thread::get_id()](ChunkPhase phase, SteadyTime) {
        EXPECT_EQ(std::this_thread::get_id(), here);
        EXPECT_EQ(phase.step, phases++);
      },
      ignore);
  EXPECT_EQ(phases, 4);
}

TEST(Lanes, WorkAtOnce) {
  // Each of two phases waits until the other has begun.
  const ChunkPlan plan{.name = "crossed",
                       .collective = Collective::reduce_scatter,
                       .grid = {{2, 2}},
                       .algorithms = {"ring", "ring"},
                       .lanes = {0, 1},
                       .chunk_bytes = {1, 1},
                       .orders = {{0, 1}, {1, 0}},
                       .service = {{{0, 0}, {1, 1}}, {{1, 0}, {0, 1}}}};
  Lanes lanes(2);
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  lanes.run(
      plan,
      [&](ChunkPhase phase, SteadyTime) {
        if (phase.step > 0) return;
        std::unique_lock lock(mutex);
        ++begun;
        changed.notify_all();
        changed.wait(lock, [&] { return begun == 2; });
      },
      ignore);
  EXPECT_EQ(begun, 2);
}

TEST(Lanes, TheFirstErrorEndsAll) {
  Lanes lanes(3);
  for (const int chunks : {1, 4}) {
    std::vector<std::string> told;
    const ChunkPlan plan = random_plan({{2, 2, 2}}, Collective::all_reduce, 1000, {.chunks = chunks});
    EXPECT_THROW(lanes.run(
                     plan,
                     [&](ChunkPhase phase, SteadyTime) {
                       EXPECT_LT(phase.step, 3);
                       if (phase.step == 2) throw std::runtime_error("the wire is cut");
                     },
                     [&](const std::exception& error) { told.emplace_back(error.what()); }),
                 std::runtime_error);
    EXPECT_THAT(told, ::testing::ElementsAre("the wire is cut"));
    // They serve again.
    int phases = 0;
    std::mutex mutex;
    lanes.run(
        plan,
        [&](ChunkPhase, SteadyTime) {
          const std::lock_guard lock(mutex);
          ++phases;
        },
        ignore);
    EXPECT_EQ(phases, 6 * chunks);
  }
}

}  // namespace
}  // namespace dear::grid
