#include "dear/platform/cost/chunk_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/cost/cluster_times.h"

namespace dear::cost {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Seconds a byte of 1 and 2, no start-ups.
Cluster two_by_four() {
  return {
      .name = "2x4",
      .dimensions = {
          {.name = "inside", .size = 2, .wiring = Wiring::ring, .link = {0, 1}},
          {.name = "across", .size = 4, .wiring = Wiring::ring, .link = {0, 2}, .links = 2, .beside = true}}};
}

algorithm::ChunkPlan plan_of(const ChunkNetwork& network, std::vector<std::int64_t> bytes,
                             std::vector<std::vector<int>> orders,
                             std::vector<std::vector<algorithm::ChunkPhase>> service) {
  return {.name = "by hand",
          .collective = Collective::reduce_scatter,
          .grid = network.grid,
          .algorithms = network.algorithms,
          .lanes = network.lanes,
          .chunk_bytes = std::move(bytes),
          .orders = std::move(orders),
          .service = std::move(service)};
}

// Chunk 0: inside 400 of 800 at 1, then across 300 of 400 at 2. Chunk 1: across 600 of 800 at 2, then inside
// 100 of 200 at 1.
TEST(ChunkTimes, AreThoseOfThePencil) {
  const ChunkNetwork network = chunk_network(two_by_four());
  const ChunkTimes times =
      play(plan_of(network, {800, 800}, {{0, 1}, {1, 0}}, {{{0, 0}, {1, 1}}, {{1, 0}, {0, 1}}}), network);
  ASSERT_EQ(times.spans.size(), 4U);
  EXPECT_DOUBLE_EQ(times.spans[0].end_seconds, 400);
  EXPECT_DOUBLE_EQ(times.spans[1].end_seconds, 1200);
  EXPECT_DOUBLE_EQ(times.spans[2].begin_seconds, 1200);  // inside, after its phase across
  EXPECT_DOUBLE_EQ(times.spans[2].end_seconds, 1300);
  EXPECT_DOUBLE_EQ(times.spans[3].end_seconds, 1800);
  EXPECT_DOUBLE_EQ(times.seconds, 1800);
  EXPECT_THAT(times.busy_seconds, ElementsAre(500, 1800));
  EXPECT_THAT(times.sent_bytes, ElementsAre(500, 900));
}

// 7/8 of 1600 bytes at 1 + 1/2 bytes a second.
TEST(ChunkTimes, NothingIsFasterThanAllDimensionsTogether) {
  const ChunkNetwork network = chunk_network(two_by_four());
  EXPECT_DOUBLE_EQ(ideal_seconds(network, Collective::reduce_scatter, 1600), 1400 / 1.5);
  EXPECT_DOUBLE_EQ(ideal_seconds(network, Collective::all_gather, 1600), 1400 / 1.5);
  EXPECT_DOUBLE_EQ(ideal_seconds(network, Collective::all_reduce, 1600), 2800 / 1.5);
  const auto plan = plan_of(network, {1600}, {{0, 1}}, {{{0, 0}}, {{0, 1}}});
  EXPECT_DOUBLE_EQ(utilisation(plan, play(plan, network), network), 1400 / 1.5 / (800 + 1200));
  EXPECT_THROW(ideal_seconds(network, Collective::broadcast, 1), ConfigError);
  EXPECT_THROW(ideal_seconds(network, Collective::all_reduce, -1), ConfigError);
}

// Chunks in the order of the hierarchy, one at a time, are the hierarchical algorithm.
TEST(ChunkTimes, OneChunkIsTheHierarchicalAlgorithm) {
  for (const Wiring wiring : {Wiring::ring, Wiring::switched, Wiring::full_mesh}) {
    for (const int links : {1, 4, 8}) {
      const Cluster cluster{
          .name = "nodes",
          .dimensions = {{.name = "node", .size = 8, .wiring = wiring, .link = {2e-6, 1e-10}},
                         {.name = "network", .size = 4, .link = {5e-6, 1e-9}, .links = links}}};
      const std::string stage = wiring == Wiring::ring       ? "ring"
                                : wiring == Wiring::switched ? "halving-doubling"
                                                             : "direct";
      const ClusterTimes hierarchical(cluster, {.algorithm = "hierarchical:" + stage + ",halving-doubling"});
      for (const Collective collective :
           {Collective::reduce_scatter, Collective::all_gather, Collective::all_reduce}) {
        const PlannedChunks planned =
            make_chunk_plan(cluster, collective, 1 << 24, {.algorithm = "baseline", .chunks = 1});
        EXPECT_NEAR(planned.seconds, hierarchical.seconds(collective, 1 << 24), 1e-12);
      }
    }
  }
}

TEST(ChunkTimes, ALaunchCountsOnceWhereItTakesLongerThanStartUps) {
  Cluster cluster{.name = "nodes",
                  .dimensions = {{.name = "node", .size = 8, .link = {2e-6, 1e-10}},
                                 {.name = "network", .size = 4, .link = {5e-6, 1e-9}}}};
  for (const double launch : {0.0, 1e-5, 1e-3}) {
    cluster.software.launch_seconds = launch;
    const ClusterTimes hierarchical(cluster, {.algorithm = "hierarchical:halving-doubling,halving-doubling"});
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
      const double beyond = launch_beyond_start_ups(chunk_network(cluster), collective);
      EXPECT_NEAR(
          beyond +
              make_chunk_plan(cluster, collective, 1 << 24, {.algorithm = "baseline", .chunks = 1}).seconds,
          hierarchical.seconds(collective, 1 << 24), 1e-12);
    }
  }
}

// The spine is reached through the cards of the rail.
TEST(ChunkTimes, DimensionsThatShareLinksShareALane) {
  Cluster tree{.name = "tree",
               .dimensions = {{.name = "node", .size = 2, .link = {0, 1}},
                              {.name = "rail", .size = 2, .link = {0, 1}, .links = 2, .beside = true},
                              {.name = "spine", .size = 2, .link = {0, 1}, .links = 4}}};
  const ChunkNetwork network = chunk_network(tree);
  EXPECT_THAT(network.lanes, ElementsAre(0, 1, 1));
  EXPECT_DOUBLE_EQ(ideal_seconds(network, Collective::reduce_scatter, 800), 700.0 / 2);
  const PlannedChunks planned = make_chunk_plan(network, Collective::reduce_scatter, 1 << 20);
  EXPECT_GE(planned.seconds, ideal_seconds(network, Collective::reduce_scatter, 1 << 20));
}

TEST(ChunkTimes, RefusesAPlanOfAnotherGrid) {
  const ChunkNetwork network = chunk_network(two_by_four());
  auto plan = plan_of(network, {1600}, {{0, 1}}, {{{0, 0}}, {{0, 1}}});
  plan.grid.sizes = {4, 2};
  EXPECT_THAT([&] { play(plan, network); }, ThrowsMessage<ConfigError>(HasSubstr("4x2")));
}

}  // namespace
}  // namespace dear::cost
