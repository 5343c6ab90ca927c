#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/grid/grid_backend.h"
#include "dear/comm/grid/grid_in_test.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/group/testing/values.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/shaped/shaped.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::backends::grid_test {
namespace {

using algorithm::ChunkPlan;
using algorithm::Grid;
using comm::testing::ConformanceOptions;
using comm::testing::Order;
using grid::GridOptions;
using grid::make_grid_backend;
using grid::split_into_lines;
using grid::grid_in_test::grid_over;
using grid::grid_in_test::random_planner;
using grid::grid_in_test::soon;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::unique_ptr<Backend>> over_messages(int ranks,
                                                    const message_programs::ProgramOptions& options = {}) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (auto& channels : channels::testing::make_thread_channels(ranks))
    backends.push_back(message_programs::make_program_backend(std::move(channels), options));
  return backends;
}

using MakeGrid = std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend> whole)>;

// Runs the body on threads, each of which makes its rank of the grid.
std::vector<std::string> run_grid(std::vector<std::unique_ptr<Backend>> wholes, const MakeGrid& make,
                                  const std::function<void(Group&)>& body) {
  return testing::run_on_threads(static_cast<int>(wholes.size()), [&](int rank) {
    Group group(make(std::move(wholes[static_cast<std::size_t>(rank)])), {});
    body(group);
  });
}

enum class Medium : std::uint8_t { shm, messages };

struct Case {
  std::vector<int> sizes;
  Medium medium = Medium::shm;
  bool reproducible = false;
  bool one_lane = false;
};

class Grids : public ::testing::TestWithParam<Case> {
 protected:
  const Case& which_ = GetParam();
  const Grid grid_{which_.sizes};
  [[nodiscard]] std::vector<std::unique_ptr<Backend>> wholes() const {
    return which_.medium == Medium::shm ? testing::make_shm_threads(grid_.ranks())
                                        : over_messages(grid_.ranks());
  }
  [[nodiscard]] std::vector<std::string> run(const std::function<void(Group&)>& body) const {
    return run_grid(
        wholes(),
        [this](std::unique_ptr<Backend> whole) {
          return grid_over(std::move(whole), {.grid = grid_,
                                              .planner = random_planner(grid_, {.one_lane = which_.one_lane}),
                                              .reproducible = which_.reproducible});
        },
        body);
  }
};

TEST_P(Grids, CarryEverything) {
  EXPECT_THAT(run([this](Group& group) {
                // Rounding in the order of ranks is the same to the bit as in a group of one dimension.
                comm::testing::check_group(
                    group,
                    {.counts = {17, 1000, 5003}, .order = which_.reproducible ? Order::ranks : Order::fixed});
                comm::testing::check_parts(group);
              }),
              Each("ok"));
}

INSTANTIATE_TEST_SUITE_P(
    Of, Grids,
    ::testing::Values(Case{.sizes = {2, 2}}, Case{.sizes = {4, 2}}, Case{.sizes = {2, 2, 2}},
                      Case{.sizes = {3, 2}}, Case{.sizes = {1, 4}}, Case{.sizes = {2, 1, 3}},
                      Case{.sizes = {2, 2}, .reproducible = true},
                      Case{.sizes = {2, 3}, .reproducible = true},
                      Case{.sizes = {2, 2, 2}, .medium = Medium::messages, .reproducible = true},
                      Case{.sizes = {2, 2}, .medium = Medium::messages, .reproducible = true},
                      Case{.sizes = {3, 2}, .medium = Medium::messages},
                      Case{.sizes = {2, 3}, .one_lane = true}),
    [](const auto& test) {
      const Case& which = test.param;
      return fmt::format("{}{}{}{}", fmt::join(which.sizes, "x"),
                         which.medium == Medium::shm ? "OverShm" : "OverMessages",
                         which.reproducible ? "Reproducible" : "", which.one_lane ? "OnOneLane" : "");
    });

TEST(Grid, OfOneRankIsThatRank) {
  EXPECT_THAT(run_grid(
                  testing::make_shm_threads(1),
                  [](std::unique_ptr<Backend> whole) {
                    return grid_over(std::move(whole), {.grid = {{1, 1}}, .planner = {}});
                  },
                  [](Group& group) { comm::testing::check_group(group); }),
              Each("ok"));
}

// Ranks 0 and 1 share memory, and so do 2 and 3; the rest goes over messages.
TEST(Grid, MixesSharedMemoryAndMessages) {
  for (const bool reproducible : {false, true}) {
    std::vector<std::unique_ptr<Backend>> hosts;
    for (int host = 0; host < 2; ++host) {
      for (auto& inside : testing::make_shm_threads(2)) hosts.push_back(std::move(inside));
    }
    const auto make = [&](std::unique_ptr<Backend> whole) {
      const Grid grid{{2, 2}};
      std::vector<std::unique_ptr<Backend>> lines = split_into_lines(*whole, grid, soon());
      lines[0] = std::move(hosts[static_cast<std::size_t>(whole->rank())]);
      return make_grid_backend({.whole = std::move(whole), .lines = std::move(lines)},
                               {.grid = grid, .planner = random_planner(grid), .reproducible = reproducible});
    };
    EXPECT_THAT(run_grid(over_messages(4), make,
                         [&](Group& group) {
                           comm::testing::check_group(
                               group,
                               {.counts = {17, 5003}, .order = reproducible ? Order::ranks : Order::fixed});
                         }),
                Each("ok"));
  }
}

// Hosts whose ranks read each other's memory, as threads, with messages across.
std::vector<std::string> run_on_hosts(const Grid& grid, bool reproducible, int chunks,
                                      const std::function<void(Group&)>& body) {
  std::vector<std::unique_ptr<SharedMemory>> insides;
  for (int host = 0; host < grid.ranks() / grid.sizes[0]; ++host) {
    for (auto& inside : testing::make_shared_memory_threads(grid.sizes[0]))
      insides.push_back(std::move(inside));
  }
  const auto make = [&](std::unique_ptr<Backend> whole) {
    auto lines = split_into_lines(*whole, grid, soon());
    std::unique_ptr<SharedMemory> inside = std::move(insides[static_cast<std::size_t>(whole->rank())]);
    const auto part_of = [memory = inside.get()](const Buffer& buffer, int member) {
      return memory->part_of(buffer, member);
    };
    lines[0] = std::move(inside);
    return make_grid_backend(
        {.whole = std::move(whole),
         .lines = std::move(lines),
         .direct = grid::DirectDimension{.dimension = 0, .part_of = part_of}},
        {.grid = grid, .planner = random_planner(grid, {.chunks = chunks}), .reproducible = reproducible});
  };
  return run_grid(over_messages(grid.ranks()), make, body);
}

TEST(Grid, ReadsTheMemoryOfNeighbours) {
  struct Hosts {
    std::vector<int> sizes;
    bool reproducible;
    int chunks;
  };
  for (const Hosts& hosts : std::vector<Hosts>{{{2, 2}, false, 4},
                                               {{3, 2}, false, 1},
                                               {{2, 3}, true, 3},
                                               {{2, 2, 2}, false, 6},
                                               {{2, 1, 2}, false, 2}}) {
    if (dear::testing::kSanitizer && hosts.sizes != std::vector{2, 2} && !hosts.reproducible) continue;
    EXPECT_THAT(run_on_hosts({hosts.sizes}, hosts.reproducible, hosts.chunks,
                             [&](Group& group) {
                               comm::testing::check_group(
                                   group, {.counts = {17, 1000, 5003},
                                           .order = hosts.reproducible ? Order::ranks : Order::fixed});
                               comm::testing::check_parts(group);
                             }),
                Each("ok"))
        << fmt::format("{}", fmt::join(hosts.sizes, "x"));
  }
}

// Ranks of one host differ, then those of several.
TEST(Grid, NeighboursThatDifferAreAMismatch) {
  for (const int odd : {3, 2}) {
    EXPECT_THAT(
        run_on_hosts(
            {{2, 2}}, false, 2,
            [&](Group& group) {
              const Buffer buffer = group.allocate(40'000);
              const View view{.buffer = buffer, .count = 10'000};
              group.all_reduce(view, Reduction::sum).wait();
              const bool other = odd == 3 ? group.rank() == 3 : group.rank() >= odd;
              group.all_reduce({.buffer = buffer, .count = other ? 9'000 : 10'000}, Reduction::sum).wait();
              group.barrier().wait();
            }),
        Each(AllOf(HasSubstr("rank"), HasSubstr("every rank must issue the same"))));
  }
}

// One chunk for each order of dimensions, and each order alone.
std::vector<ChunkPlan> plans_of_all_orders(const Grid& grid, Collective collective, std::int64_t bytes) {
  std::vector<int> order(grid.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  ChunkPlan all = grid::grid_in_test::random_plan(grid, collective, bytes, {.chunks = 1});
  all.chunk_bytes.clear();
  all.orders.clear();
  std::vector<ChunkPlan> plans;
  do {
    ChunkPlan one = all;
    one.orders = {order};
    one.chunk_bytes = {bytes};
    for (auto& lane : one.service) lane.clear();
    for (int step = 0; step < one.steps(); ++step)
      one.service[static_cast<std::size_t>(one.dimension_of({.chunk = 0, .step = step}))].push_back(
          {.chunk = 0, .step = step});
    plans.push_back(one);
    all.orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  const auto chunks = static_cast<std::int64_t>(all.orders.size());
  all.chunk_bytes.assign(all.orders.size(), bytes / chunks);
  all.chunk_bytes.back() += bytes % chunks;
  for (auto& lane : all.service) lane.clear();
  for (int step = 0; step < all.steps(); ++step) {
    for (int chunk = 0; chunk < all.chunks(); ++chunk)
      all.service[static_cast<std::size_t>(all.dimension_of({.chunk = chunk, .step = step}))].push_back(
          {.chunk = chunk, .step = step});
  }
  plans.push_back(all);
  return plans;
}

TEST(Grid, AllOrdersGiveTheSame) {
  const Grid grid{{2, 3, 2}};
  constexpr std::int64_t kCount = 3001;
  const std::size_t many = plans_of_all_orders(grid, Collective::all_reduce, 8).size();
  for (std::size_t which = 0; which < many; ++which) {
    // The all-gather goes another way than the reduce-scatter before it.
    const auto planner = [&](Collective collective, std::int64_t bytes) {
      const std::size_t shift = collective == Collective::all_gather ? 1 : 0;
      return plans_of_all_orders(grid, collective, bytes)[(which + shift) % many];
    };
    EXPECT_THAT(run_grid(
                    testing::make_shm_threads(grid.ranks()),
                    [&](std::unique_ptr<Backend> whole) {
                      return grid_over(std::move(whole), {.grid = grid, .planner = planner});
                    },
                    [&](Group& group) {
                      const View view{
                          .buffer = group.allocate(kCount * 8), .count = kCount, .dtype = DType::i64};
                      const auto sum = [&](std::int64_t i) {
                        return comm::testing::expected(DType::i64, Reduction::sum, group.size(), i);
                      };
                      comm::testing::fill(view, group.rank());
                      group.all_reduce(view, Reduction::sum).wait();
                      comm::testing::expect_elements(view, "all-reduce", sum);
                      comm::testing::fill(view, group.rank());
                      group.reduce_scatter(view, Reduction::sum).wait();
                      group.all_gather(view).wait();
                      comm::testing::expect_elements(view, "reduce-scatter and all-gather", sum);
                    }),
                Each("ok"));
  }
}

TEST(Grid, RanksThatDawdleEndAllTheSame) {
  const Grid grid{{2, 2, 2}};
  for (unsigned seed = 0; seed < 5; ++seed) {
    EXPECT_THAT(
        run_grid(
            testing::make_shm_threads(grid.ranks()),
            [&](std::unique_ptr<Backend> whole) {
              const auto random =
                  std::make_shared<std::atomic<unsigned>>(seed + 100 * static_cast<unsigned>(whole->rank()));
              const auto dawdle = [random] {
                std::mt19937 draw((*random)++);
                for (unsigned turn = draw() % 200; turn > 0; --turn) std::this_thread::yield();
              };
              return grid::grid_in_test::wrapped_grid_over(
                  std::move(whole),
                  {.grid = grid, .planner = random_planner(grid, {.chunks = 9, .seed = seed})}, dawdle);
            },
            [](Group& group) { comm::testing::check_in_flight(group); }),
        Each("ok"));
  }
}

// Two dimensions at once are as fast as the slower of the two, in what the links would take.
TEST(Grid, OverModelledLinksSaysSo) {
  const Grid grid{{2, 2}};
  const Network network{.name = "string", .link = {.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-9}};
  const auto make = [&](std::unique_ptr<Backend> whole) {
    auto lines = split_into_lines(*whole, grid, soon());
    for (auto& line : lines) line = make_shaped(std::move(line), network);
    return make_grid_backend({.whole = std::move(whole), .lines = std::move(lines)},
                             {.grid = grid, .planner = random_planner(grid)});
  };
  EXPECT_THAT(run_grid(testing::make_shm_threads(4), make,
                       [](Group& group) {
                         EXPECT_THAT(group.modelled_network(), HasSubstr("string"));
                         EXPECT_THAT(group.description(), StartsWith("grid 2x2: "));
                         const View view{.buffer = group.allocate(400'000), .count = 100'000};
                         const Timing timing = group.all_reduce(view, Reduction::sum).wait();
                         // Half of the vector crosses each of two links, at least, twice.
                         EXPECT_GE(timing.end - timing.begin, std::chrono::microseconds(400));
                       }),
              Each("ok"));
}

}  // namespace
}  // namespace dear::backends::grid_test
