#include "dear/platform/cluster/cluster.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::cluster_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Link kNear{.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-11};
constexpr Link kFar{.alpha_seconds = 1e-5, .beta_seconds_per_byte = 1e-9};

// 24 ranks: 2 pods of 3 nodes of 4.
Cluster pods() {
  return {.name = "pods",
          .dimensions = {{.name = "node", .size = 4, .link = kNear},
                         {.name = "rail", .size = 3, .link = kFar, .links = 4},
                         {.name = "spine", .size = 2, .link = kFar, .links = 2, .oversubscription = 3}},
          .stragglers = {{.rank = 5, .slowdown = 2}, {.rank = 23, .slowdown = 1.5}}};
}

TEST(Wirings, AreFoundByTheirNames) {
  for (const Wiring wiring : {Wiring::ring, Wiring::switched, Wiring::full_mesh}) {
    EXPECT_EQ(find_wiring(name_of(wiring)), wiring);
  }
  EXPECT_EQ(name_of(Wiring::full_mesh), "full-mesh");
  EXPECT_THAT([] { find_wiring("torus"); },
              ThrowsMessage<ConfigError>(ContainsRegex("'torus'.*ring, switched")));
}

TEST(Clusters, HaveTheProductOfTheirSizes) {
  EXPECT_EQ(pods().ranks(), 24);
  EXPECT_EQ(flat_cluster({.name = "flat", .link = kFar}, 7).ranks(), 7);
  EXPECT_NO_THROW(validate(pods()));
}

struct Fault {
  void (*spoil)(Cluster&);
  std::string message;
};
class FaultyCluster : public ::testing::TestWithParam<Fault> {};
TEST_P(FaultyCluster, IsRefusedByName) {
  Cluster cluster = pods();
  GetParam().spoil(cluster);
  EXPECT_THAT([&] { validate(cluster); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("cluster 'pods'"), HasSubstr(GetParam().message))));
}
constexpr double kInfinity = std::numeric_limits<double>::infinity();
INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyCluster,
    ::testing::Values(
        Fault{[](Cluster& c) { c.dimensions.clear(); }, "has no dimension"},
        Fault{[](Cluster& c) { c.dimensions[1].name = ""; }, "dimension 1 of cluster 'pods'"},
        Fault{[](Cluster& c) { c.stragglers[1].rank = c.stragglers[0].rank; },
              "rank 5 of cluster 'pods' is a straggler twice"},
        Fault{[](Cluster& c) { c.dimensions[0].size = 0; }, "'node' has 0 members"},
        Fault{[](Cluster& c) { c.dimensions[2].links = 0; }, "'spine' has 0 links"},
        Fault{[](Cluster& c) { c.dimensions[0].link.alpha_seconds = -1; }, "takes -1 s a message"},
        Fault{[](Cluster& c) { c.dimensions[0].link.beta_seconds_per_byte = kInfinity; }, "inf s a byte"},
        Fault{[](Cluster& c) { c.dimensions[0].link.beta_seconds_per_byte = NAN; }, "nan s a byte"},
        Fault{[](Cluster& c) { c.dimensions[1].oversubscription = 0.5; }, "is oversubscribed 0.5 times"},
        Fault{[](Cluster& c) { c.dimensions[2].beside = true; }, "a member of 12 ranks has 2 links"},
        Fault{[](Cluster& c) { c.dimensions[2].wiring = Wiring::ring; }, "only a switched one"},
        Fault{[](Cluster& c) { c.dimensions[1].size = c.dimensions[2].size = 1 << 20; }, "more than 10737"},
        Fault{[](Cluster& c) { c.stragglers[1].rank = 24; }, "no rank 24 to be a straggler"},
        Fault{[](Cluster& c) { c.stragglers[0].slowdown = 0.5; }, "straggler 5"}));

Dimension of(int size, Wiring wiring, int links = 1) {
  return {.name = "d", .size = size, .wiring = wiring, .link = kFar, .links = links};
}
Dimension beside(Dimension dimension) {
  dimension.beside = true;
  return dimension;
}

TEST(Lanes, AreTheDimensionsThatShareNoLinks) {
  const auto lanes = [](std::vector<Dimension> dimensions) {
    return lanes_of({.name = "lanes", .dimensions = std::move(dimensions)});
  };
  constexpr Wiring kRing = Wiring::ring, kSwitched = Wiring::switched, kMesh = Wiring::full_mesh;
  EXPECT_THAT(lanes({of(4, kSwitched)}), ElementsAre(0));
  EXPECT_THAT(lanes({beside(of(4, kSwitched))}), ElementsAre(0));
  EXPECT_THAT(lanes({of(4, kSwitched), beside(of(2, kRing, 4)), beside(of(2, kMesh, 8))}),
              ElementsAre(0, 1, 2));
  // A tree, and a node with a tree beside it.
  EXPECT_THAT(lanes({of(4, kSwitched), of(2, kSwitched), of(2, kSwitched)}), ElementsAre(0, 0, 0));
  EXPECT_THAT(lanes({of(8, kSwitched), beside(of(512, kSwitched, 8)), of(32, kSwitched)}),
              ElementsAre(0, 1, 1));
  // Messages that only cross the outer of two rings take no link of the inner one.
  EXPECT_THAT(lanes({of(4, kRing), of(2, kRing)}), ElementsAre(0, 1));
  EXPECT_THAT(lanes({of(4, kMesh), of(2, kSwitched), of(2, kRing), of(2, kSwitched)}),
              ElementsAre(0, 1, 1, 1));
  // One member has no network.
  EXPECT_THAT(lanes({of(1, kSwitched), of(4, kSwitched), beside(of(1, kRing, 4)), of(2, kSwitched)}),
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(lanes({of(1, kSwitched)}), ElementsAre(0));
}

TEST(BytesPerSecond, OfARankAreItsPartOfTheLinksOfItsMember) {
  Cluster cluster = pods();
  EXPECT_DOUBLE_EQ(bytes_per_second_of_rank(cluster, 0), 1e11);
  EXPECT_DOUBLE_EQ(bytes_per_second_of_rank(cluster, 1), 1e9);
  EXPECT_DOUBLE_EQ(bytes_per_second_of_rank(cluster, 2), 1e9 * 2 / 12 / 3);
  cluster.dimensions[0].wiring = Wiring::full_mesh;
  EXPECT_DOUBLE_EQ(bytes_per_second_of_rank(cluster, 0), 3e11);
  cluster.dimensions[0].wiring = Wiring::ring;
  EXPECT_DOUBLE_EQ(bytes_per_second_of_rank(cluster, 0), 1e11);
  cluster.dimensions[0].link.beta_seconds_per_byte = 0;
  EXPECT_EQ(bytes_per_second_of_rank(cluster, 0), kInfinity);
}

TEST(WithRanks, FillsInnerDimensionsFirst) {
  const Cluster cluster = pods();
  EXPECT_EQ(with_ranks(cluster, 24), cluster);

  const Cluster part_of_a_node = with_ranks(cluster, 3);
  ASSERT_EQ(part_of_a_node.dimensions.size(), 1U);
  EXPECT_EQ(part_of_a_node.dimensions[0].name, "node");
  EXPECT_EQ(part_of_a_node.dimensions[0].size, 3);
  EXPECT_TRUE(part_of_a_node.stragglers.empty());

  const Cluster two_nodes = with_ranks(cluster, 8);
  ASSERT_EQ(two_nodes.dimensions.size(), 2U);
  EXPECT_EQ(two_nodes.dimensions[0], cluster.dimensions[0]);
  EXPECT_EQ(two_nodes.dimensions[1].size, 2);
  EXPECT_EQ(two_nodes.dimensions[1].links, 4);
  EXPECT_EQ(two_nodes.stragglers, std::vector{cluster.stragglers[0]});

  EXPECT_EQ(with_ranks(cluster, 12).dimensions.size(), 2U);
  EXPECT_EQ(with_ranks(cluster, 1).ranks(), 1);
}

TEST(WithRanks, GivesExactlyTheNumbersItNames) {
  const Cluster cluster = pods();
  int parts = 0;
  for (int ranks = -1; ranks <= 30; ++ranks) {
    const bool fills = (1 <= ranks && ranks <= 4) || ranks == 8 || ranks == 12 || ranks == 24;
    if (fills) {
      EXPECT_EQ(with_ranks(cluster, ranks).ranks(), ranks);
      ++parts;
    } else {
      EXPECT_THAT([&] { with_ranks(cluster, ranks); },
                  ThrowsMessage<ConfigError>(
                      ContainsRegex("part of " + std::to_string(ranks) + " ranks.*multiple of 12 up to 24")))
          << ranks;
    }
  }
  EXPECT_EQ(parts, 7);
}

TEST(WithRanks, AFlatClusterMayGrow) {
  const Cluster flat = flat_cluster({.name = "flat", .link = kFar}, 4);
  for (const int ranks : {1, 3, 4, 5, 1000}) {
    EXPECT_EQ(with_ranks(flat, ranks), flat_cluster({.name = "flat", .link = kFar}, ranks));
  }
  EXPECT_THROW(with_ranks(flat, 0), ConfigError);
}

}  // namespace
}  // namespace dear::cluster_test
