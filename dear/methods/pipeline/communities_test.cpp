#include "dear/methods/pipeline/communities.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/platform/cluster/sites.h"

namespace dear::methods::pipeline::communities_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

Weights random_weights(std::mt19937& random, std::size_t nodes, double density) {
  std::uniform_real_distribution<double> draw(0, 1);
  Weights weights(nodes, std::vector<double>(nodes));
  for (std::size_t i = 0; i < nodes; ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (draw(random) < density) weights[i][j] = weights[j][i] = draw(random);
  return weights;
}

// The sum over all pairs, as Newman and Girvan write it.
double modularity_by_pairs(const Weights& weights, const std::vector<int>& community) {
  const std::size_t nodes = weights.size();
  std::vector<double> degree(nodes);
  double all = 0;
  for (std::size_t i = 0; i < nodes; ++i)
    for (std::size_t j = 0; j < nodes; ++j) {
      degree[i] += weights[i][j];
      all += weights[i][j];
    }
  double q = 0;
  for (std::size_t i = 0; i < nodes; ++i)
    for (std::size_t j = 0; j < nodes; ++j)
      if (community[i] == community[j]) q += (weights[i][j] - degree[i] * degree[j] / all) / all;
  return all > 0 ? q : 0;
}

double best_of_all_divisions(const Weights& weights) {
  double best = -1;
  std::vector<int> community;
  const std::function<void(int)> extend = [&](int communities) {
    if (community.size() == weights.size()) {
      best = std::max(best, modularity_by_pairs(weights, community));
      return;
    }
    for (int c = 0; c <= communities; ++c) {
      community.push_back(c);
      extend(std::max(communities, c + 1));
      community.pop_back();
    }
  };
  extend(0);
  return best;
}

TEST(Louvain, ComesNearTheBestOfAllDivisions) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 150; ++trial) {
    const std::size_t nodes = 2 + static_cast<std::size_t>(trial) % 7;
    const Weights weights = random_weights(random, nodes, trial % 3 == 0 ? 1 : 0.5);
    const std::vector<int> found = louvain(weights);
    EXPECT_NEAR(modularity(weights, found), modularity_by_pairs(weights, found), 1e-12);
    const double best = best_of_all_divisions(weights);
    EXPECT_GE(modularity(weights, found), 0.98 * best - 1e-12) << "trial " << trial;
  }
}

TEST(Louvain, FindsWhatWasPlanted) {
  std::mt19937 random(4);
  std::uniform_real_distribution<double> draw(0.5, 1.5);
  for (const int planted : {1, 2, 3}) {
    for (const std::size_t nodes : {6U, 12U, 48U}) {
      std::vector<int> site(nodes);
      for (std::size_t i = 0; i < nodes; ++i) site[i] = static_cast<int>(i) % planted;
      std::shuffle(site.begin(), site.end(), random);
      Weights weights(nodes, std::vector<double>(nodes));
      for (std::size_t i = 0; i < nodes; ++i)
        for (std::size_t j = 0; j < i; ++j)
          weights[i][j] = weights[j][i] = (site[i] == site[j] ? 100 : 2) * (planted == 1 ? 1 : draw(random));
      const std::vector<int> found = louvain(weights);
      for (std::size_t i = 0; i < nodes; ++i)
        for (std::size_t j = 0; j < nodes; ++j) EXPECT_EQ(found[i] == found[j], site[i] == site[j]);
      EXPECT_EQ(found[0], 0);  // by first nodes
    }
  }
  EXPECT_THAT(louvain({{0}}), ElementsAre(0));
  EXPECT_THAT(louvain({{0, 0}, {0, 0}}), ElementsAre(0, 1));  // nothing joins them
  EXPECT_EQ(modularity({{0, 0}, {0, 0}}, {0, 0}), 0);
}

std::pair<double, double> width_of(const Weights& weights, const std::vector<int>& path) {
  double narrowest = 1e9, distance = 0;  // of a node alone
  for (std::size_t i = 1; i < path.size(); ++i) {
    const double w = weights[static_cast<std::size_t>(path[i - 1])][static_cast<std::size_t>(path[i])];
    narrowest = std::min(narrowest, w);
    distance += 1 / w;
  }
  return {narrowest, distance};
}

TEST(WidestChain, IsThatOfAllPermutations) {
  std::mt19937 random(9);
  for (int trial = 0; trial < 120; ++trial) {
    const std::size_t nodes = 1 + static_cast<std::size_t>(trial) % 6;
    Weights weights = random_weights(random, nodes, 1);
    // Few different widths, so that the second goal decides.
    for (std::vector<double>& row : weights)
      for (double& w : row) w = trial % 2 == 0 ? w + 0.01 : 1 + static_cast<int>(3 * w);
    for (std::size_t i = 0; i < nodes; ++i) weights[i][i] = 0;
    const int first = trial % 3 == 0 ? 0 : -1;
    const int last = trial % 4 == 0 && nodes > 1 ? static_cast<int>(nodes) - 1 : -1;
    std::vector<int> path(nodes);
    std::iota(path.begin(), path.end(), 0);
    std::pair<double, double> best{-1, 0};
    do {
      if ((first >= 0 && path.front() != first) || (last >= 0 && path.back() != last)) continue;
      const auto width = width_of(weights, path);
      const bool same = std::abs(width.first - best.first) < 1e-12;
      if (same ? width.second < best.second : width.first > best.first) best = width;
    } while (std::next_permutation(path.begin(), path.end()));
    const std::vector<int> found = widest_chain(weights, first, last);
    EXPECT_THAT(std::set<int>(found.begin(), found.end()), SizeIs(nodes));
    EXPECT_NEAR(width_of(weights, found).first, best.first, 1e-12);
    EXPECT_NEAR(width_of(weights, found).second, best.second, 1e-9);
    EXPECT_TRUE(first < 0 || found.front() == first);
    EXPECT_TRUE(last < 0 || found.back() == last);
  }
}

// Above 8 nodes: on a ring, each is joined to its neighbours by 1 and to others by less.
TEST(WidestChain, GoesToTheNearestAbove8) {
  Weights weights(12, std::vector<double>(12, 0.1));
  for (std::size_t i = 0; i < 12; ++i) weights[i][(i + 1) % 12] = weights[(i + 1) % 12][i] = 1;
  const std::vector<int> chain = widest_chain(weights);
  EXPECT_THAT(std::set<int>(chain.begin(), chain.end()), SizeIs(12));
  EXPECT_EQ(width_of(weights, chain).first, 1);
  EXPECT_EQ(widest_chain(weights, 3, 4).front(), 3);
  EXPECT_EQ(widest_chain(weights, 3, 4).back(), 4);
  EXPECT_EQ(width_of(weights, widest_chain(weights, 3, 4)).first, 1);
}

TEST(Communities, OfPresetsAreTheirSites) {
  for (const PairClusterPreset& preset : pair_clusters()) {
    const std::vector<std::vector<int>> communities = ordered_communities(preset.cluster);
    std::set<int> all;
    std::set<std::string> sites;
    for (const std::vector<int>& community : communities) {
      std::set<std::string> here;
      for (const int device : community) {
        const std::string& name = preset.cluster.devices[static_cast<std::size_t>(device)].name;
        here.insert(name.substr(0, name.starts_with("site") ? 5 : 1));
        EXPECT_TRUE(all.insert(device).second);
      }
      EXPECT_THAT(here, SizeIs(1)) << preset.cluster.name;
      sites.insert(*here.begin());
    }
    EXPECT_THAT(all, SizeIs(preset.cluster.devices.size()));
    EXPECT_THAT(sites, SizeIs(communities.size()));
  }
  // b lies between a and c, whose links to each other are the slowest.
  const std::vector<std::vector<int>> three = ordered_communities(find_pair_cluster("three-sites"));
  ASSERT_THAT(three, SizeIs(3));
  EXPECT_THAT(three[1], Each(::testing::AllOf(::testing::Ge(8), ::testing::Lt(16))));
}

// Two communities meet at the devices with the best link between them.
TEST(Communities, MeetAtTheirBestLink) {
  PairCluster cluster = find_pair_cluster("two-sites");
  cluster.bytes_per_second[2][5] = cluster.bytes_per_second[5][2] = 2e7;
  const std::vector<std::vector<int>> two = ordered_communities(cluster);
  ASSERT_THAT(two, SizeIs(2));
  EXPECT_EQ(two[0].back() + two[1].front(), 7);
  EXPECT_TRUE(two[0].back() == 2 || two[0].back() == 5);
  // A device alone is a community of its own.
  EXPECT_THAT(ordered_communities(random_sites({.devices = 1, .sites = 1})), ElementsAre(ElementsAre(0)));
}

PairCluster joined_by(const Weights& weights) {
  PairCluster cluster{.name = "joined", .devices = {}, .bytes_per_second = weights, .latency_seconds = {}};
  cluster.devices.resize(weights.size());
  return cluster;
}

// The sites meet at 2 and 1, and for the ring at 0 and 3 as well.
TEST(OpenedRings, BeginAndEndAtTheFastestLinks) {
  const PairCluster cluster = joined_by({{0, 10, 1, 3}, {10, 0, 4, 1}, {1, 4, 0, 9}, {3, 1, 9, 0}});
  const std::vector<std::vector<std::vector<int>>> opened = opened_rings(cluster, {{0, 1}, {2, 3}});
  using Order = std::vector<std::vector<int>>;
  EXPECT_THAT(opened, ElementsAre(Order{{0}, {3, 2}, {1}}, Order{{1}, {2, 3}, {0}},  // 10
                                  Order{{2}, {1, 0}, {3}}, Order{{3}, {0, 1}, {2}},  // 9
                                  Order{{1, 0}, {3, 2}}, Order{{2, 3}, {0, 1}},      // 4
                                  Order{{3, 2}, {1, 0}}, Order{{0, 1}, {2, 3}}));    // 3
  EXPECT_TRUE(opened_rings(joined_by({{0, 1}, {1, 0}}), {{0}, {1}}).empty());
  EXPECT_TRUE(opened_rings(joined_by({{0}}), {{0}}).empty());
}

// No ring has a faster slowest link; each order passes every device once, and no more than 32 links are
// opened.
TEST(OpenedRings, AreOfTheWidestRing) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 30; ++trial) {
    const std::size_t devices = 3 + static_cast<std::size_t>(trial) % 4;
    const Weights weights = random_weights(random, devices, 1);
    std::vector<std::vector<int>> alone;
    for (std::size_t device = 0; device < devices; ++device) alone.push_back({static_cast<int>(device)});
    const auto narrowest = [&](const std::vector<int>& ring) {
      double least = HUGE_VAL;
      for (std::size_t i = 0; i < ring.size(); ++i)
        least = std::min(least, weights[static_cast<std::size_t>(ring[i])]
                                       [static_cast<std::size_t>(ring[(i + 1) % ring.size()])]);
      return least;
    };
    std::vector<int> ring(devices);
    std::iota(ring.begin(), ring.end(), 0);
    double best = 0;
    do best = std::max(best, narrowest(ring));
    while (std::next_permutation(ring.begin(), ring.end()));
    const auto opened = opened_rings(joined_by(weights), alone);
    EXPECT_THAT(opened, SizeIs(2 * devices));
    for (const std::vector<std::vector<int>>& order : opened) {
      std::vector<int> passed;
      for (const std::vector<int>& part : order) passed.insert(passed.end(), part.begin(), part.end());
      EXPECT_EQ(narrowest(passed), best);
      EXPECT_THAT(std::set<int>(passed.begin(), passed.end()), SizeIs(devices));
    }
  }
  const PairCluster many = find_pair_cluster("fusionllm-48");
  const auto opened = opened_rings(many, ordered_communities(many));
  EXPECT_THAT(opened, SizeIs(64));
  for (const std::vector<std::vector<int>>& order : opened) {
    std::set<int> passed;
    for (const std::vector<int>& part : order) passed.insert(part.begin(), part.end());
    EXPECT_THAT(passed, SizeIs(48));
  }
}

}  // namespace
}  // namespace dear::methods::pipeline::communities_test
