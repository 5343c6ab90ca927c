#include <atomic>
#include <csignal>
#include <latch>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/grid/grid_backend.h"
#include "dear/comm/grid/grid_in_test.h"
#include "dear/comm/group/testing/chunk_rows.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/shm/shm.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

// What a grid refuses, and how it ends when a rank fails.
namespace dear::backends::grid_failures_test {
namespace {

using algorithm::Grid;
using grid::GridOptions;
using grid::make_grid_backend;
using grid::grid_in_test::grid_over;
using grid::grid_in_test::random_planner;
using grid::grid_in_test::soon;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Body = std::function<void(Group&)>;

std::vector<std::string> run_as(const std::function<GridOptions(int rank)>& options_of, int ranks,
                                const Body& body) {
  auto wholes = testing::make_shm_threads(ranks);
  return testing::run_on_threads(ranks, [&](int rank) {
    Group group(grid_over(std::move(wholes[static_cast<std::size_t>(rank)]), options_of(rank)), {});
    body(group);
  });
}

std::vector<std::string> run_as(const Grid& grid, const Body& body) {
  return run_as([&](int) { return GridOptions{.grid = grid, .planner = random_planner(grid)}; }, grid.ranks(),
                body);
}

View whole(const Buffer& buffer) { return {.buffer = buffer, .count = buffer.bytes() / 4}; }

TEST(GridFailures, OneRankEndsAll) {
  EXPECT_THAT(run_as({{2, 2, 2}},
                     [](Group& group) {
                       const Buffer buffer = group.allocate(40'000);
                       group.all_reduce(whole(buffer), Reduction::sum).wait();
                       if (group.rank() == 5) group.abort("the disk is full");
                       for (;;) group.all_reduce(whole(buffer), Reduction::sum).wait();
                     }),
              Each(AllOf(HasSubstr("the disk is full"), HasSubstr("rank 5"))));
}

TEST(GridFailures, OneRankEndsAllOverMessagesToo) {
  const Grid grid{{2, 3}};
  auto channels = channels::testing::make_thread_channels(grid.ranks());
  EXPECT_THAT(
      testing::run_on_threads(
          grid.ranks(),
          [&](int rank) {
            auto all =
                message_programs::make_program_backend(std::move(channels[static_cast<std::size_t>(rank)]));
            Group group(grid_over(std::move(all), {.grid = grid, .planner = random_planner(grid)}), {});
            const Buffer buffer = group.allocate(40'000);
            group.all_reduce(whole(buffer), Reduction::sum).wait();
            if (rank == 4) group.abort("the disk is full");
            for (;;) group.all_reduce(whole(buffer), Reduction::sum).wait();
          }),
      Each(AllOf(HasSubstr("the disk is full"), HasSubstr("rank 4"))));
}

TEST(GridFailures, OneRankEndsAnExchangeOfRows) {
  EXPECT_THAT(run_as({{2, 3}},
                     [](Group& group) {
                       comm::testing::exchange_rows(group, [&](int round) {
                         if (round == 2 && group.rank() == 4) group.abort("the disk is full");
                       });
                     }),
              Each(AllOf(HasSubstr("the disk is full"), HasSubstr("rank 4"))));
  EXPECT_THAT(run_as({{2, 3}}, [](Group& group) { comm::testing::lie_about_rows(group, 5, 2, 9); }),
              Each(HasSubstr("rank 5 says that it sends 9 rows of chunk 1 to rank 2")));
}

// The victim stops before a phase in the middle, until all others have given up.
TEST(GridFailures, ARankThatStopsInTheMiddleIsNamedAtTheDeadline) {
  const Grid grid{{2, 2, 2}};
  constexpr int kVictim = 6;
  auto wholes = testing::make_shm_threads(grid.ranks());
  std::latch others(grid.ranks() - 1);
  auto reports = testing::run_on_threads(grid.ranks(), [&](int rank) {
    const auto phases = std::make_shared<std::atomic<int>>(0);
    const auto stop = [&, phases, rank] {
      if (rank == kVictim && (*phases)++ == 9) others.wait();
    };
    Group group(grid::grid_in_test::wrapped_grid_over(std::move(wholes[static_cast<std::size_t>(rank)]),
                                                      {.grid = grid, .planner = random_planner(grid)}, stop),
                {.timeout = std::chrono::seconds(3)});
    const Buffer buffer = group.allocate(40'000);
    try {
      for (;;) group.all_reduce(whole(buffer), Reduction::sum).wait();
    } catch (const Error&) {
      if (rank != kVictim) others.count_down();
      throw;
    }
  });
  EXPECT_THAT(reports, Each(HasSubstr("rank " + std::to_string(kVictim))));
}

TEST(GridFailures, OtherCountsAreAMismatch) {
  EXPECT_THAT(run_as({{2, 2}},
                     [](Group& group) {
                       const Buffer buffer = group.allocate(4000);
                       for (int i = 0; i < 3; ++i) group.all_reduce(whole(buffer), Reduction::sum).wait();
                       const std::int64_t count = group.rank() == 2 ? 999 : 1000;
                       group.all_reduce({.buffer = buffer, .count = count}, Reduction::sum).wait();
                       group.barrier().wait();
                     }),
              Each(AllOf(HasSubstr("999"), HasSubstr("rank 2"))));
}

TEST(GridFailures, OtherCollectivesAreAMismatch) {
  EXPECT_THAT(run_as({{2, 2}},
                     [](Group& group) {
                       const Buffer buffer = group.allocate(4000);
                       group.all_gather(whole(buffer)).wait();
                       if (group.rank() == 1) {
                         group.all_gather(whole(buffer)).wait();
                       } else {
                         group.reduce_scatter(whole(buffer), Reduction::sum).wait();
                       }
                       group.barrier().wait();
                     }),
              Each(AllOf(HasSubstr("Mismatch"), HasSubstr("rank 1"))));
}

TEST(GridFailures, OtherPlansAreAMismatch) {
  const Grid grid{{2, 2}};
  EXPECT_THAT(run_as(
                  [&](int rank) {
                    return GridOptions{.grid = grid,
                                       .planner = random_planner(grid, {.chunks = rank == 3 ? 4 : 5})};
                  },
                  4,
                  [](Group& group) {
                    group.all_reduce(whole(group.allocate(4000)), Reduction::sum).wait();
                    group.barrier().wait();
                  }),
              Each(AllOf(HasSubstr("Mismatch"), HasSubstr("rank 3"), HasSubstr("chunk plan"))));
}

TEST(GridFailures, APlanThatCannotBeIsAnErrorOfAll) {
  const Grid grid{{2, 2}};
  const auto planner = [&](Collective collective, std::int64_t bytes) {
    auto plan = grid::grid_in_test::random_plan(grid, collective, bytes, {});
    plan.service[0].pop_back();
    return plan;
  };
  EXPECT_THAT(
      run_as([&](int) { return GridOptions{.grid = grid, .planner = planner}; }, 4,
             [](Group& group) { group.all_reduce(whole(group.allocate(4000)), Reduction::sum).wait(); }),
      Each(HasSubstr("served 0 times")));
  const auto of_another_grid = [&](Collective collective, std::int64_t bytes) {
    return grid::grid_in_test::random_plan({{4, 1}}, collective, bytes, {});
  };
  EXPECT_THAT(
      run_as([&](int) { return GridOptions{.grid = grid, .planner = of_another_grid}; }, 4,
             [](Group& group) { group.all_reduce(whole(group.allocate(4000)), Reduction::sum).wait(); }),
      Each(HasSubstr("4x1")));
}

TEST(GridFailures, SizesMustMakeAllRanks) {
  for (const Grid& grid : {Grid{{2, 3}}, Grid{{4}}, Grid{{0, 6}}, Grid{}}) {
    EXPECT_THAT(run_as([&](int) { return GridOptions{.grid = grid, .planner = random_planner(grid)}; }, 5,
                       [](Group&) {}),
                Each(StartsWith("ConfigError")));
  }
}

TEST(GridFailures, LinesMustBeThoseOfTheRank) {
  auto wholes = testing::make_shm_threads(4);
  auto lines = testing::make_shm_threads(2);
  std::vector<std::unique_ptr<Backend>> swapped;
  swapped.push_back(std::move(lines[1]));
  swapped.push_back(std::move(lines[0]));
  EXPECT_THROW(
      make_grid_backend({.whole = std::move(wholes[0]), .lines = std::move(swapped)}, {.grid = {{2, 2}}}),
      ConfigError);
  EXPECT_THROW(make_grid_backend({.whole = std::move(wholes[1]), .lines = {}}, {.grid = {{2, 2}}}),
               ConfigError);
}

// Each rank counts the phases that it comes to; the victim dies before the one of this number.
TEST(GridFailures, ADeathInTheMiddleIsNamedByAll) {
  const Grid grid{{2, 2, 2}};
  for (const auto& [victim, phase] : std::vector<std::pair<int, int>>{{0, 0}, {3, 7}, {7, 20}}) {
    const std::string rendezvous = testing::fresh_rendezvous();
    auto reports = testing::run_in_processes(grid.ranks(), [&](int rank) {
      const auto phases = std::make_shared<std::atomic<int>>(0);
      const auto count = [&, phases] {
        if ((*phases)++ == phase && rank == victim) raise(SIGKILL);
      };
      auto all = make_shm({.rendezvous = rendezvous, .rank = rank, .size = grid.ranks(), .deadline = soon()});
      Group group(grid::grid_in_test::wrapped_grid_over(
                      std::move(all), {.grid = grid, .planner = random_planner(grid)}, count),
                  {});
      const Buffer buffer = group.allocate(400'000);
      for (;;) group.all_reduce(whole(buffer), Reduction::sum).wait();
    });
    EXPECT_EQ(reports[static_cast<std::size_t>(victim)], "killed by signal 9");
    reports.erase(reports.begin() + victim);
    EXPECT_THAT(reports,
                Each(AllOf(StartsWith("TransportError"), HasSubstr("rank " + std::to_string(victim)))));
  }
}

}  // namespace
}  // namespace dear::backends::grid_failures_test
