#include "dear/platform/fabric/chunk_play.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/testing/chunk_plans.h"
#include "dear/platform/fabric/play.h"

namespace dear::fabric::chunk_play_test {
namespace {

using algorithm::ChunkPlan;
using algorithm::Grid;
using algorithm::testing::add_random_chunks;
using algorithm::testing::empty_chunk_plan;
using algorithm::testing::serve_step_by_step;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

// The part of each dimension's bandwidth that was used: bytes that a rank sent over those that it could have
// sent from 0 s to the end (bytes_per_second_of_rank). 0 where links take no time or nothing was sent; more
// than 1 where messages go both ways round a ring.
std::vector<double> utilisation_of(const PlayedChunks& played, const Cluster& cluster) {
  std::vector<double> utilisation;
  for (int dimension = 0; dimension < static_cast<int>(played.bytes.size()); ++dimension) {
    const double most = played.seconds * bytes_per_second_of_rank(cluster, dimension);
    utilisation.push_back(most > 0 ? played.bytes[static_cast<std::size_t>(dimension)] / most : 0);
  }
  return utilisation;
}

constexpr Collective kCollectives[] = {Collective::reduce_scatter, Collective::all_gather,
                                       Collective::all_reduce};

struct Wire {
  int size = 1;
  Wiring wiring = Wiring::switched;
  Link link{.alpha_seconds = 1, .beta_seconds_per_byte = 1};
};

// Dimensions beside each other.
Cluster cluster_of(const std::vector<Wire>& wires) {
  Cluster cluster{.name = "test"};
  int ranks = 1;
  for (const auto& [size, wiring, link] : wires) {
    cluster.dimensions.push_back(
        {.name = "d", .size = size, .wiring = wiring, .link = link, .links = ranks, .beside = true});
    ranks *= size;
  }
  return cluster;
}

Grid grid_of(const Cluster& cluster) {
  Grid grid;
  for (const Dimension& dimension : cluster.dimensions) grid.sizes.push_back(dimension.size);
  return grid;
}

// One rank comes so little later that it makes no difference to see, and yet each is played by itself.
PlayedChunks play_each_rank(const ChunkPlan& plan, const Cluster& cluster) {
  std::vector<double> enter(static_cast<std::size_t>(cluster.ranks()), 0);
  enter.back() = 1e-13;
  return play(plan, cluster, {.enter_seconds = enter});
}

ChunkPlan plan_for(const Cluster& cluster, Collective collective, std::vector<std::int64_t> chunk_bytes,
                   std::vector<std::vector<int>> orders, std::vector<std::string> algorithms = {}) {
  ChunkPlan plan = empty_chunk_plan(grid_of(cluster), collective);
  plan.lanes = lanes_of(cluster);
  if (!algorithms.empty()) plan.algorithms = std::move(algorithms);
  plan.chunk_bytes = std::move(chunk_bytes);
  plan.orders = std::move(orders);
  serve_step_by_step(plan);
  return plan;
}

// Two chunks of 8 bytes on 2 x 2 ranks, in opposite orders; 1 s a message and 1 s a byte everywhere. Halves
// of 8 bytes take 1 + 4 s, halves of the 4 that are left 1 + 2 s. So both dimensions are busy all the time.
TEST(PlayChunks, OppositeOrdersKeepBothDimensionsBusy) {
  const Cluster cluster = cluster_of({{.size = 2}, {.size = 2}});
  const ChunkPlan plan = plan_for(cluster, Collective::all_reduce, {8, 8}, {{0, 1}, {1, 0}});
  for (const PlayedChunks& played : {play(plan, cluster), play_each_rank(plan, cluster)}) {
    EXPECT_NEAR(played.seconds, 16, 1e-9);
    EXPECT_THAT(played.end_seconds, AllOf(SizeIs(4), Each(DoubleNear(16, 1e-9))));
    EXPECT_EQ(played.messages, 2 * 4 * 4);
    EXPECT_THAT(played.bytes, ElementsAre(12, 12));
    EXPECT_THAT(utilisation_of(played, cluster), Each(DoubleNear(12.0 / 16, 1e-9)));
    const std::vector<std::pair<double, double>> times{{0, 5}, {5, 8}, {8, 11}, {11, 16}};
    ASSERT_EQ(played.spans.size(), 8U);
    for (const ChunkSpan& span : played.spans) {
      EXPECT_EQ(span.lane, plan.dimension_of(span.phase));
      EXPECT_NEAR(span.begin_seconds, times[static_cast<std::size_t>(span.phase.step)].first, 1e-9);
      EXPECT_NEAR(span.end_seconds, times[static_cast<std::size_t>(span.phase.step)].second, 1e-9);
    }
  }
}

// The same orders: dimension 0 scatters from 0 to 10 s, dimension 1 scatters from 5 to 8 and from 10 to 13 s,
// and gathers from 13 to 16 and to 19 s, dimension 0 gathers from 16 to 21 and to 26 s.
TEST(PlayChunks, EqualOrdersLeaveADimensionIdle) {
  const Cluster cluster = cluster_of({{.size = 2}, {.size = 2}});
  const ChunkPlan plan = plan_for(cluster, Collective::all_reduce, {8, 8}, {{0, 1}, {0, 1}});
  EXPECT_NEAR(play(plan, cluster).seconds, 26, 1e-9);
  EXPECT_NEAR(play_each_rank(plan, cluster).seconds, 26, 1e-9);
}

// A full mesh of 4 sends to three at once, a switch of 4 shares one link among three, a ring forwards.
TEST(PlayChunks, ADirectExchangeTakesWhatItsWiringGives) {
  const auto seconds = [](Wiring wiring) {
    const Cluster cluster = cluster_of({{.size = 1}, {.size = 4, .wiring = wiring}});
    return play(plan_for(cluster, Collective::all_gather, {16}, {{1}}, {"ring", "direct"}), cluster).seconds;
  };
  EXPECT_NEAR(seconds(Wiring::full_mesh), 1 + 4, 1e-9);
  EXPECT_NEAR(seconds(Wiring::switched), 1 + 12, 1e-9);
  // One to each side, and half of the exchanges with the opposite rank over each link: they go on to the
  // next.
  EXPECT_GT(seconds(Wiring::ring), 1 + 8);
}

// With one lane, or one chunk, nothing of a plan goes on beside something else: it is a program.
TEST(PlayChunks, OneLaneOrOneChunkIsAProgram) {
  std::mt19937 random(5);
  Cluster tree = cluster_of(
      {{.size = 3, .link = {.alpha_seconds = 2, .beta_seconds_per_byte = 0.5}}, {.size = 2}, {.size = 4}});
  for (Dimension& dimension : tree.dimensions) {
    dimension.beside = false;
    dimension.links = 1;
  }
  Cluster blocking = tree;
  blocking.dimensions[1].oversubscription = 2;
  const std::vector<std::pair<Cluster, int>> cases{
      {cluster_of({{.size = 5}}), 7},
      {cluster_of({{.size = 8, .wiring = Wiring::ring}}), 3},
      {cluster_of({{.size = 6, .wiring = Wiring::full_mesh}}), 3},
      {cluster_of({{.size = 3, .wiring = Wiring::ring}, {.size = 2}, {.size = 3}}), 1},
      {cluster_of({{.size = 4, .wiring = Wiring::full_mesh}, {.size = 1}, {.size = 6}}), 1},
      {tree, 1},
      {blocking, 1}};
  for (const auto& [cluster, chunks] : cases) {
    for (const char* const algorithm : {"ring", "halving-doubling", "direct"}) {
      for (const Collective collective : kCollectives) {
        ChunkPlan plan = empty_chunk_plan(grid_of(cluster), collective);
        plan.lanes = lanes_of(cluster);
        plan.algorithms.assign(plan.grid.sizes.size(), algorithm);
        add_random_chunks(plan, chunks, 1000, random);
        // Chunks of one size: all blocks of a program have it.
        plan.chunk_bytes.assign(plan.chunk_bytes.size(), plan.chunk_bytes.front() + 1);
        const Played expected =
            fabric::play(algorithm::program_of(plan), Topology(cluster), static_cast<double>(plan.bytes()));
        const PlayedChunks played = play(plan, cluster);
        for (std::size_t rank = 0; rank < played.end_seconds.size(); ++rank)
          EXPECT_NEAR(played.end_seconds[rank], expected.end_seconds[rank], 1e-9 * expected.seconds)
              << algorithm << " on " << plan.grid.sizes.size() << " dimensions, rank " << rank;
        EXPECT_EQ(played.messages, expected.messages);
      }
    }
  }
}

// (n - 1) alpha + (n - 1)/n m beta for rings on switches: all phases are known, and follow each other.
TEST(PlayChunks, WithoutContentionPhasesAreRings) {
  std::mt19937 random(11);
  const auto pick = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<Wire> wires;
    for (int i = pick(1, 4); i > 0; --i) {
      wires.push_back(
          {.size = pick(1, 4),
           .wiring = pick(0, 1) == 0 ? Wiring::switched : Wiring::ring,
           .link = {.alpha_seconds = pick(0, 9) * 10.0, .beta_seconds_per_byte = 1.0 / pick(1, 9)}});
    }
    const Cluster cluster = cluster_of(wires);
    ChunkPlan plan = empty_chunk_plan(grid_of(cluster), kCollectives[pick(0, 2)]);
    add_random_chunks(plan, pick(1, 12), pick(1, 3000), random);
    std::vector<double> lanes(plan.service.size(), 0), chunks(plan.chunk_bytes.size(), 0);
    double seconds = 0;
    std::vector<double> bytes(plan.grid.sizes.size(), 0);
    for (const algorithm::ChunkPhase& phase : algorithm::in_order(plan)) {
      const auto dimension = static_cast<std::size_t>(plan.dimension_of(phase));
      const double part = (wires[dimension].size - 1) * plan.bytes_of(phase) / wires[dimension].size;
      double& lane = lanes[dimension];
      double& chunk = chunks[static_cast<std::size_t>(phase.chunk)];
      lane = chunk = std::max(lane, chunk) +
                     (wires[dimension].size - 1) * wires[dimension].link.alpha_seconds +
                     part * wires[dimension].link.beta_seconds_per_byte;
      seconds = std::max(seconds, chunk);
      bytes[dimension] += part;
    }
    const double near = 1e-9 * (1 + seconds);
    for (const PlayedChunks& played : {play(plan, cluster), play_each_rank(plan, cluster)}) {
      EXPECT_THAT(played.end_seconds, Each(DoubleNear(seconds, near))) << "trial " << trial;
      for (std::size_t dimension = 0; dimension < bytes.size(); ++dimension)
        EXPECT_NEAR(played.bytes[dimension], bytes[dimension], 1e-9 * (1 + bytes[dimension]));
      std::size_t phases = 0;
      for (const auto& service : plan.service) phases += service.size();
      EXPECT_EQ(played.spans.size(), phases);
    }
  }
}

// Ranks that are not in step, with all wirings and ways: still each span follows what it must, and nothing is
// faster than its dimension (a ring may be used both ways round).
TEST(PlayChunks, WhateverHappensOrderAndBandwidthAreKept) {
  std::mt19937 random(13);
  const auto pick = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int trial = 0; trial < 60; ++trial) {
    Cluster cluster{.name = "random"};
    int ranks = 1;
    for (int i = pick(1, 3); i > 0; --i) {
      const bool beside = pick(0, 1) == 0;
      cluster.dimensions.push_back(
          {.name = "d",
           .size = pick(1, 5),
           .wiring = static_cast<Wiring>(pick(0, 2)),
           .link = {.alpha_seconds = pick(0, 9) * 10.0, .beta_seconds_per_byte = 1.0 / pick(1, 9)},
           .links = beside ? ranks : pick(1, ranks),
           .beside = beside});
      ranks *= cluster.dimensions.back().size;
    }
    ChunkPlan plan = empty_chunk_plan(grid_of(cluster), kCollectives[pick(0, 2)]);
    plan.lanes = lanes_of(cluster);
    for (std::string& algorithm : plan.algorithms)
      algorithm = algorithm::line_algorithms()[static_cast<std::size_t>(pick(0, 2))];
    add_random_chunks(plan, pick(1, 6), 2000, random);
    std::vector<double> enter;
    for (int rank = 0; rank < ranks; ++rank) enter.push_back(pick(0, 100));
    const PlayedChunks played = play(plan, cluster, {.enter_seconds = enter});
    std::vector<double> lanes(plan.service.size(), enter[0]), chunks(plan.chunk_bytes.size(), enter[0]);
    for (const ChunkSpan& span : played.spans) {
      double& lane = lanes[static_cast<std::size_t>(span.lane)];
      double& chunk = chunks[static_cast<std::size_t>(span.phase.chunk)];
      EXPECT_EQ(span.begin_seconds, std::max(lane, chunk)) << "trial " << trial;
      lane = chunk = span.end_seconds;
    }
    for (std::size_t rank = 0; rank < enter.size(); ++rank) EXPECT_GE(played.end_seconds[rank], enter[rank]);
    EXPECT_EQ(played.seconds, *std::max_element(played.end_seconds.begin(), played.end_seconds.end()));
    EXPECT_THAT(utilisation_of(played, cluster), Each(::testing::Le(2 + 1e-9))) << "trial " << trial;
  }
}

// One that comes late holds up its lines, and those the lines that they cross.
TEST(PlayChunks, ARankThatComesLateHoldsUpAll) {
  const Cluster cluster = cluster_of({{.size = 2}, {.size = 2}});
  const ChunkPlan plan = plan_for(cluster, Collective::reduce_scatter, {8}, {{0, 1}});
  // Ranks 2 and 3 are through with their line at 5 s, and wait for ranks 0 and 1, which are at 15 s.
  const PlayedChunks played = play(plan, cluster, {.enter_seconds = {0, 10, 0, 0}});
  EXPECT_THAT(played.end_seconds, Each(DoubleNear(18, 1e-9)));
  EXPECT_THAT(play(plan, cluster, {.enter_seconds = {3, 3, 3, 3}}).end_seconds, Each(DoubleNear(11, 1e-9)));
}

TEST(PlayChunks, BytesMayBeNoneAndDimensionsOfOne) {
  const Cluster cluster = cluster_of({{.size = 1}, {.size = 2}, {.size = 1}, {.size = 2}});
  const ChunkPlan empty = plan_for(cluster, Collective::all_reduce, {0, 0}, {{1, 3}, {3, 1}});
  const PlayedChunks played = play(empty, cluster);
  EXPECT_NEAR(played.seconds, 4, 1e-9);
  EXPECT_THAT(utilisation_of(played, cluster), Each(0));
  const Cluster alone = cluster_of({{.size = 1}, {.size = 1}});
  const PlayedChunks nothing = play(plan_for(alone, Collective::all_reduce, {8}, {{}}), alone);
  EXPECT_EQ(nothing.seconds, 0);
  EXPECT_THAT(nothing.end_seconds, ElementsAre(0));
  EXPECT_EQ(nothing.messages, 0);
}

// Two nodes of four ranks behind one card each, and a switch that carries half: 4 · 2 times a card's time.
TEST(PlayChunks, LinesThatShareLinksKeepInStep) {
  Cluster tree =
      cluster_of({{.size = 4, .link = {.alpha_seconds = 1, .beta_seconds_per_byte = 0.25}}, {.size = 2}});
  tree.dimensions[1].beside = false;
  tree.dimensions[1].links = 1;
  tree.dimensions[1].oversubscription = 2;
  const ChunkPlan plan =
      plan_for(tree, Collective::reduce_scatter, {64, 64}, {{0, 1}, {1, 0}}, {"direct", "ring"});
  ASSERT_EQ(plan.service.size(), 2U);
  ASSERT_THAT(plan.service[1], ElementsAre());
  // Lane 0: 1 + 64 · 3/4 · 0.25 s inside, 1 + 32 · 8 s across, then on what is left 1 + 8 · 8 and 1 + 6.
  for (const PlayedChunks& played : {play(plan, tree), play_each_rank(plan, tree)})
    EXPECT_NEAR(played.seconds, 13 + 257 + 65 + 7, 1e-9);
}

TEST(PlayChunks, RanksInStepAreAsManyAsThereAre) {
  const Link link{.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-10};
  Cluster cluster =
      cluster_of({{.size = 8, .link = link}, {.size = 512, .link = link}, {.size = 32, .link = link}});
  ChunkPlan plan = empty_chunk_plan(grid_of(cluster), Collective::all_reduce);
  plan.algorithms = {"direct", "halving-doubling", "halving-doubling"};
  std::mt19937 random(17);
  add_random_chunks(plan, 64, 16'000'000, random);
  const PlayedChunks played = play(plan, cluster);
  EXPECT_EQ(played.end_seconds.size(), 131'072U);
  EXPECT_EQ(played.messages, 64ULL * 2 * 131'072 * (7 + 9 + 5));
}

TEST(PlayChunks, RefusesWhatDoesNotFit) {
  const Cluster cluster = cluster_of({{.size = 2}, {.size = 2}});
  const ChunkPlan plan = plan_for(cluster, Collective::all_reduce, {8}, {{0, 1}});
  EXPECT_THAT([&] { play(plan, cluster_of({{.size = 4}})); },
              ThrowsMessage<ConfigError>(HasSubstr("a grid of 2x2 ranks")));
  EXPECT_THAT([&] { play(plan, cluster, {.enter_seconds = {1, 2}}); },
              ThrowsMessage<ConfigError>(HasSubstr("2 times to enter")));
  EXPECT_THAT([&] { play(plan, cluster, {.enter_seconds = {0, 0, -1, 0}}); },
              ThrowsMessage<ConfigError>(HasSubstr("rank 2")));
  EXPECT_THROW(play(plan, cluster, {.enter_seconds = {0, 0, std::numeric_limits<double>::infinity(), 0}}),
               ConfigError);
  ChunkPlan unserved = plan;
  unserved.service[0].pop_back();
  EXPECT_THROW(play(unserved, cluster), ScheduleError);
  const Cluster large = cluster_of({{.size = 100'000}});
  EXPECT_THAT([&] { play(plan_for(large, Collective::all_reduce, {8}, {{0}}), large); },
              ThrowsMessage<ConfigError>(HasSubstr("too many")));
}

}  // namespace
}  // namespace dear::fabric::chunk_play_test
