#include "dear/platform/cost/chunk_planner.h"

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/platform/cluster/presets.h"

namespace dear::cost {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Collective kCollectives[] = {Collective::reduce_scatter, Collective::all_gather,
                                       Collective::all_reduce};

ChunkNetwork network_of(const std::vector<int>& sizes, const std::vector<double>& bytes_per_second,
                        double alpha_seconds = 0) {
  Cluster cluster{.name = "made", .dimensions = {}};
  int ranks = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    cluster.dimensions.push_back({.name = "dimension",
                                  .size = sizes[i],
                                  .link = {alpha_seconds, 1 / bytes_per_second[i]},
                                  .links = ranks,
                                  .beside = i > 0});
    ranks *= sizes[i];
  }
  return chunk_network(cluster);
}

TEST(ChunkPlanner, RulesOfThemis) {
  // Loads of a chunk of 1024 bytes: {inside 512, across 384 at 2 seconds a byte}. The first chunk begins
  // inside; then the load across is more; and so on.
  const ChunkNetwork network = network_of({2, 4}, {1, 0.5});
  const algorithm::ChunkPlan plan =
      make_chunk_plan(network, Collective::all_reduce, 4096, {.algorithm = "themis-fifo", .chunks = 4}).plan;
  EXPECT_THAT(plan.chunk_bytes, ElementsAre(1024, 1024, 1024, 1024));
  // Loads after each: (512, 768), (1024, 1536), (1536, 2304), ...: inside always has less.
  for (const auto& order : plan.orders) EXPECT_THAT(order, ElementsAre(0, 1));
  const ChunkNetwork slow_inside = network_of({2, 4}, {0.25, 0.5});
  const algorithm::ChunkPlan turned =
      make_chunk_plan(slow_inside, Collective::all_reduce, 4096, {.algorithm = "themis-fifo", .chunks = 4})
          .plan;
  // Loads: (2048, 768) after the first, (2560, 2304), (3072, 3840), and then (5120, 4608).
  EXPECT_THAT(turned.orders,
              ElementsAre(ElementsAre(0, 1), ElementsAre(1, 0), ElementsAre(1, 0), ElementsAre(0, 1)));
}

// tests/data/themis_loads.csv: orders and loads by Themis's authors' simulator.
TEST(ChunkPlanner, OrdersAndLoadsAreThoseOfAstraSim) {
  std::ifstream file(dear::testing::source_file("tests/data/themis_loads.csv"));
  int clusters_compared = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("themis-")) continue;
    std::istringstream columns(line);
    std::string name;
    std::string bytes;
    std::string loads;
    std::string orders;
    std::getline(columns, name, ',');
    std::getline(columns, bytes, ',');
    std::getline(columns, loads, ',');
    std::getline(columns, orders);
    const ChunkNetwork network = chunk_network(find_cluster(name));
    const algorithm::ChunkPlan plan =
        make_chunk_plan(network, Collective::reduce_scatter, std::stoll(bytes), {.algorithm = "themis-fifo"})
            .plan;
    SCOPED_TRACE(name + ", " + bytes + " bytes");
    std::istringstream order_words(orders);
    for (const std::vector<int>& order : plan.orders) {
      std::string expected;
      ASSERT_TRUE(order_words >> expected);
      EXPECT_EQ(fmt::format("{}", fmt::join(order, "")), expected);
    }
    const ChunkTimes times = play(plan, network);
    std::istringstream load_words(loads);
    for (int dimension = 0; dimension < network.grid.dimensions(); ++dimension) {
      double expected = 0;
      ASSERT_TRUE(load_words >> expected);
      const double unit = (1 << 20) / network.bytes_per_second(0);
      EXPECT_NEAR(times.busy_seconds[index_of(dimension)] / unit, expected, 1e-5);
    }
    ++clusters_compared;
  }
  EXPECT_EQ(clusters_compared, 18);
}

TEST(ChunkPlanner, SmallDifferencesOfLoadKeepTheBaseline) {
  // Two equal dimensions: after one chunk of 64 KiB in each order loads are even again.
  const ChunkNetwork network = network_of({4, 4}, {1, 1});
  const algorithm::ChunkPlan plan =
      make_chunk_plan(network, Collective::reduce_scatter, 4 << 16, {.algorithm = "themis-scf", .chunks = 4})
          .plan;
  EXPECT_THAT(plan.orders,
              ElementsAre(ElementsAre(0, 1), ElementsAre(1, 0), ElementsAre(0, 1), ElementsAre(1, 0)));
}

TEST(ChunkPlanner, RoundRobinGoesAround) {
  const algorithm::ChunkPlan plan =
      make_chunk_plan(network_of({2, 1, 2, 2}, {1, 1, 1, 1}), Collective::all_gather, 1 << 20,
                      {.algorithm = "round-robin", .chunks = 4})
          .plan;
  EXPECT_THAT(plan.orders, ElementsAre(ElementsAre(0, 2, 3), ElementsAre(2, 3, 0), ElementsAre(3, 0, 2),
                                       ElementsAre(0, 2, 3)));
}

// play() takes as long as the maker said; no plan beats the ideal; the plan that is shipped is never slower
// than the baseline.
TEST(ChunkPlanner, TenThousandRandomClusters) {
  std::mt19937_64 random(2110'04478);
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  int slower_than_baseline = 0;
  for (int cluster = 0; cluster < 10'000; ++cluster) {
    std::vector<int> sizes;
    std::vector<double> rates;
    for (int dimensions = draw(1, 4); dimensions > 0; --dimensions) {
      sizes.push_back(draw(1, 16));
      rates.push_back(1e9 * std::exp2(draw(0, 50) / 10.0));  // 32 times apart
    }
    const ChunkNetwork network = network_of(sizes, rates, draw(0, 1) * 2e-6);
    const Collective collective = kCollectives[draw(0, 2)];
    const std::int64_t bytes = std::int64_t{1} << draw(0, 30);
    const int chunks = draw(1, 64);
    const auto plan = [&](const char* algorithm) {
      return make_chunk_plan(network, collective, bytes, {.algorithm = algorithm, .chunks = chunks});
    };
    const PlannedChunks baseline = plan("baseline");
    const PlannedChunks shipped = plan("themis");
    const double ideal = ideal_seconds(network, collective, bytes);
    ASSERT_LE(shipped.seconds, baseline.seconds * (1 + 1e-12));
    ASSERT_GE(shipped.seconds, ideal * (1 - 1e-9));
    if (plan("themis-fifo").seconds > 1.02 * baseline.seconds) ++slower_than_baseline;
    const ChunkTimes played = play(shipped.plan, network);
    ASSERT_NEAR(played.seconds, shipped.seconds, 1e-9 * shipped.seconds);
    ASSERT_EQ(shipped.plan.bytes(), bytes);
    ASSERT_EQ(algorithm::digest(shipped.plan), algorithm::digest(plan("themis").plan));
  }
  EXPECT_GT(slower_than_baseline, 100);  // so the guard is needed
}

TEST(ChunkPlanner, OneDimensionIsTheBaseline) {
  const ChunkNetwork network = network_of({8}, {1e9}, 1e-6);
  for (const ChunkPlanner& planner : chunk_planners()) {
    const PlannedChunks planned = make_chunk_plan(network, Collective::all_reduce, 1 << 20,
                                                  {.algorithm = std::string(planner.name), .chunks = 1});
    EXPECT_DOUBLE_EQ(planned.seconds, 2 * (3e-6 + 7.0 / 8 * (1 << 20) / 1e9)) << planner.name;
  }
  EXPECT_EQ(make_chunk_plan(network, Collective::all_reduce, 1 << 20).plan.chunks(), 1);
}

// A vector so small that start-ups are all of its time goes in one chunk, in the order of the hierarchy.
TEST(ChunkPlanner, SmallVectorsGoInOneChunk) {
  const PlannedChunks planned =
      make_chunk_plan(network_of({4, 4, 4}, {1e9, 1e9, 1e9}, 1e-5), Collective::all_reduce, 4096);
  EXPECT_EQ(planned.plan.chunks(), 1);
  EXPECT_EQ(make_chunk_plan(network_of({4, 4}, {1e9, 1e9}), Collective::all_reduce, 0).plan.chunks(), 1);
  EXPECT_EQ(make_chunk_plan(network_of({1, 1}, {1e9, 1e9}), Collective::all_reduce, 100).seconds, 0);
}

TEST(ChunkPlanner, RefusesWhatCannotBe) {
  const ChunkNetwork network = network_of({2, 2}, {1, 1});
  EXPECT_THAT([&] { make_chunk_plan(network, Collective::all_reduce, 1, {.algorithm = "thetis"}); },
              ThrowsMessage<ConfigError>(HasSubstr("themis-scf")));
  EXPECT_THROW(make_chunk_plan(network, Collective::all_reduce, 1, {.chunks = 0}), ConfigError);
  EXPECT_THROW(make_chunk_plan(network, Collective::all_reduce, 1, {.chunks = 5000}), ConfigError);
  EXPECT_THROW(make_chunk_plan(network, Collective::all_reduce, -1), ConfigError);
  EXPECT_THROW(make_chunk_plan(network, Collective::broadcast, 1), ConfigError);
}

}  // namespace
}  // namespace dear::cost
