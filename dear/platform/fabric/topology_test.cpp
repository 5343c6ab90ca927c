#include "dear/platform/fabric/topology.h"

#include <limits>
#include <random>
#include <set>

#include <gmock/gmock.h>

#include "dear/base/vocabulary/error.h"

namespace dear::fabric::topology_test {
namespace {

using testing::ElementsAre;

Dimension dimension(int size, Wiring wiring, double bytes_per_second, double alpha_seconds = 0) {
  return {.name = "d",
          .size = size,
          .wiring = wiring,
          .link = {.alpha_seconds = alpha_seconds, .beta_seconds_per_byte = 1 / bytes_per_second}};
}

TEST(Topology, AFlatSwitchHasALinkUpAndOneDownForEachRank) {
  const Topology flat({.name = "flat", .dimensions = {dimension(4, Wiring::switched, 8, 0.5)}});
  EXPECT_THAT(flat.capacities(), ElementsAre(8, 8, 8, 8, 8, 8, 8, 8));
  EXPECT_THAT(flat.route(0, 3).links, ElementsAre(0, 7));
  EXPECT_THAT(flat.route(3, 1).links, ElementsAre(6, 3));
  EXPECT_EQ(flat.route(0, 3).latency_seconds, 0.5);
  EXPECT_TRUE(flat.route(2, 2).links.empty());
  EXPECT_EQ(flat.latency_seconds(2, 2), 0);
}

TEST(Topology, ARingGoesTheShorterWay) {
  const Topology ring({.name = "ring", .dimensions = {dimension(5, Wiring::ring, 8)}});
  EXPECT_THAT(ring.route(1, 3).links, ElementsAre(2, 4));  // to the next: even numbers
  EXPECT_THAT(ring.route(1, 4).links, ElementsAre(3, 1));  // to the previous: odd ones
  EXPECT_THAT(ring.route(4, 0).links, ElementsAre(8));
}

TEST(Topology, AFullMeshHasALinkForEachOrderedPair) {
  const Topology mesh({.name = "mesh", .dimensions = {dimension(4, Wiring::full_mesh, 8)}});
  std::set<LinkId> all;
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      if (from == to) continue;
      ASSERT_EQ(mesh.route(from, to).links.size(), 1);
      all.insert(mesh.route(from, to).links.front());
    }
  }
  EXPECT_EQ(all.size(), 12);
}

// Two nodes of two ranks. Links 0 to 7 are of ranks (up, down), 8 to 11 of nodes, 12 the switch between them.
TEST(Topology, ANodesLinkIsSharedAndItsSwitchMayCarryLess) {
  Dimension nodes = dimension(2, Wiring::switched, 10, 0.5);
  nodes.oversubscription = 4;
  const Topology tree({.name = "tree", .dimensions = {dimension(2, Wiring::switched, 80, 0.1), nodes}});
  EXPECT_THAT(tree.capacities(), ElementsAre(80, 80, 80, 80, 80, 80, 80, 80, 10, 10, 10, 10, 5));
  EXPECT_THAT(tree.route(0, 1).links, ElementsAre(0, 3));
  EXPECT_EQ(tree.route(0, 1).latency_seconds, 0.1);
  EXPECT_THAT(tree.route(1, 2).links, ElementsAre(2, 8, 12, 11, 5));
  EXPECT_EQ(tree.latency_seconds(1, 2), 0.5);
}

TEST(Topology, RanksTakeTurnsWithTheLinksOfTheirNode) {
  Dimension nodes = dimension(2, Wiring::switched, 10);
  nodes.links = 2;
  Dimension inside = dimension(4, Wiring::full_mesh, 80);
  inside.link.beta_seconds_per_byte = 0;  // nothing to be waited for, so no link
  const Topology rails({.name = "rails", .dimensions = {inside, nodes}});
  const LinkId first = 4 * 4 * 2;
  EXPECT_THAT(rails.route(0, 4).links, ElementsAre(first, first + 5));
  EXPECT_THAT(rails.route(1, 5).links, ElementsAre(first + 2, first + 7));
  EXPECT_THAT(rails.route(2, 6).links, ElementsAre(first, first + 5));
  EXPECT_EQ(rails.capacities().front(), std::numeric_limits<double>::infinity());
}

// 3 x 3, a link of each rank in every direction: first along the row, then along the column.
TEST(Topology, ATorusIsCrossedDimensionByDimension) {
  Dimension columns = dimension(3, Wiring::ring, 8);
  columns.links = 3;
  const Topology torus({.name = "torus", .dimensions = {dimension(3, Wiring::ring, 8), columns}});
  EXPECT_THAT(torus.route(0, 8).links, ElementsAre(1, 18 + 2 * 2 + 1));  // back to rank 2, then up to rank 8
  EXPECT_THAT(torus.route(0, 4).links, ElementsAre(0, 18 + 2 * 1));
}

// Two nodes of two ranks, with a card for each rank: links 0 to 7 are those inside, 8 to 15 those of cards.
TEST(Topology, NetworksBesideEachOtherAreCrossedOneAfterTheOther) {
  Dimension rails = dimension(2, Wiring::switched, 10, 0.5);
  rails.links = 2;
  rails.beside = true;
  const Topology beside({.name = "rails", .dimensions = {dimension(2, Wiring::switched, 80, 0.1), rails}});
  EXPECT_THAT(beside.route(0, 1).links, ElementsAre(0, 3));
  EXPECT_THAT(beside.route(1, 3).links, ElementsAre(10, 15));
  EXPECT_THAT(beside.route(1, 2).links, ElementsAre(2, 1, 8, 13));  // by rank 0, that has the rail of rank 2
  EXPECT_EQ(beside.latency_seconds(1, 2), 0.5);
}

// The same as pods on a spine: it lies above the rails, so what crosses it takes the cards as well.
TEST(Topology, ATreeMayLieBesideAnotherNetwork) {
  Dimension rails = dimension(2, Wiring::switched, 10);
  rails.links = 2;
  rails.beside = true;
  rails.oversubscription = 2;
  Dimension spine = dimension(2, Wiring::switched, 5);
  spine.links = 4;
  const Topology tree({.name = "pods", .dimensions = {dimension(2, Wiring::switched, 80), rails, spine}});
  const LinkId cards = 2 * 8, cores = cards + 2 * 8, spines = cores + 2;
  EXPECT_THAT(tree.route(1, 3).links, ElementsAre(cards + 2, cores, cards + 7));
  EXPECT_THAT(tree.route(1, 5).links,
              ElementsAre(cards + 2, cores, spines + 2, spines + 11, cores + 1, cards + 11));
  EXPECT_THAT(tree.route(1, 7).links,
              ElementsAre(cards + 2, cores, spines + 2, spines + 15, cores + 1, cards + 15));
  EXPECT_THAT(tree.route(0, 5).links,
              ElementsAre(0, 3, cards + 2, cores, spines + 2, spines + 11, cores + 1, cards + 11));
}

TEST(Topology, ARankUsesAllLinksThatItHasForItself) {
  Dimension inside = dimension(2, Wiring::switched, 80);
  inside.links = 3;
  Dimension rails = dimension(2, Wiring::ring, 10);
  rails.links = 4;
  rails.beside = true;
  const Topology wide({.name = "wide", .dimensions = {inside, rails}});
  EXPECT_EQ(wide.capacities().size(), 16);
  EXPECT_EQ(wide.capacities().front(), 240);
  EXPECT_EQ(wide.capacities().back(), 20);
  EXPECT_THAT(wide.route(1, 3).links, ElementsAre(8 + 2));
}

// What is sent on from a switch passes it, too.
TEST(Topology, WhatLeavesAGroupPassesItsSwitch) {
  Dimension leaf = dimension(2, Wiring::switched, 10);
  leaf.oversubscription = 2;
  const Topology tree({.name = "tree", .dimensions = {leaf, dimension(2, Wiring::switched, 20)}});
  EXPECT_THAT(tree.route(0, 3).links, ElementsAre(0, 8, 10, 13, 9, 7));
}

TEST(Topology, RoutesAreSoundOnAnyCluster) {
  std::mt19937 random(7);
  const auto pick = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int trial = 0; trial < 200; ++trial) {
    Cluster cluster{.name = "random"};
    int inside = 1;
    for (int i = pick(1, 3); i > 0; --i) {
      Dimension& added = cluster.dimensions.emplace_back(
          dimension(pick(1, 5), static_cast<Wiring>(pick(0, 2)), pick(1, 9), pick(0, 9)));
      added.beside = pick(0, 2) == 0;
      added.links = pick(1, 3) * (added.beside ? inside : 1);
      inside *= added.size;
      if (added.wiring == Wiring::switched) added.oversubscription = pick(1, 2);
    }
    const Topology topology(cluster);
    const std::size_t links = topology.capacities().size();
    for (int from = 0; from < topology.ranks(); ++from) {
      for (int to = 0; to < topology.ranks(); ++to) {
        const Route route = topology.route(from, to);
        const std::set<LinkId> unique(route.links.begin(), route.links.end());
        EXPECT_EQ(unique.size(), route.links.size());
        EXPECT_EQ(route.links.empty(), from == to);
        EXPECT_EQ(route.latency_seconds, topology.latency_seconds(from, to));
        if (!unique.empty()) {
          EXPECT_LT(*unique.rbegin(), links);
        }
      }
    }
  }
}

TEST(Topology, KnowsHundredThousandRanksByTheirLinksAlone) {
  const Topology large(
      {.name = "large",
       .dimensions = {dimension(8, Wiring::switched, 8), dimension(12'500, Wiring::switched, 1)}});
  EXPECT_EQ(large.capacities().size(), 2 * 100'000 + 2 * 12'500);
  EXPECT_THAT(large.route(0, 99'999).links, ElementsAre(0, 200'000, 224'999, 199'999));
}

TEST(Topology, RefusesWhatCannotBe) {
  EXPECT_THROW(Topology({.name = "empty", .dimensions = {}}), ConfigError);
  EXPECT_THROW(Topology({.name = "mesh", .dimensions = {dimension(100'000, Wiring::full_mesh, 8)}}),
               ConfigError);
}

}  // namespace
}  // namespace dear::fabric::topology_test
