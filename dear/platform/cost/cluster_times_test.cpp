#include "dear/platform/cost/cluster_times.h"

#include <algorithm>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/algorithms.h"
#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/program_time.h"
#include "dear/platform/cost/ring.h"

namespace dear::cost::cluster_times_test {
namespace {

using algorithm::find_algorithm;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Link kLink{.alpha_seconds = 30e-6, .beta_seconds_per_byte = 8e-10};
constexpr std::int64_t kSizes[] = {0, 1, 1000, 65'536, 9'000'001, std::int64_t{1} << 31};
constexpr Collective kCollectives[] = {Collective::reduce_scatter, Collective::all_gather,
                                       Collective::all_reduce, Collective::broadcast, Collective::reduce};

Cluster flat(int ranks) { return flat_cluster({.name = "flat", .link = kLink}, ranks); }

double seconds(const Cluster& cluster, const std::string& algorithm, Collective collective,
               std::int64_t bytes) {
  return ClusterTimes(cluster, {.algorithm = algorithm}).seconds(collective, bytes);
}

void expect_same(double a, double b, const std::string& what) {
  EXPECT_NEAR(a, b, 1e-9 * std::max(a, b)) << what;
}

TEST(FlatClusterTimes, OfARingAreThoseOfItsFormulas) {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    const CollectiveTimes times = times_on(flat(ranks), {.algorithm = "ring"});
    const CollectiveTimes formulas = ring_times(kLink, ranks);
    EXPECT_EQ(times.ranks, ranks);
    EXPECT_EQ(times.message_seconds, formulas.message_seconds);
    for (const std::int64_t bytes : kSizes) {
      EXPECT_DOUBLE_EQ(times.reduce_scatter(bytes), formulas.reduce_scatter(bytes));
      EXPECT_DOUBLE_EQ(times.all_gather(bytes), formulas.all_gather(bytes));
      EXPECT_DOUBLE_EQ(times.all_reduce(bytes), formulas.all_reduce(bytes));
      EXPECT_DOUBLE_EQ(times.broadcast(bytes), formulas.broadcast(bytes));
    }
  }
}

TEST(FlatClusterTimes, AreThoseOfTheProgramsMessageByMessage) {
  for (const std::string name : {"ring", "halving-doubling", "bruck"}) {
    for (int ranks = 2; ranks <= 33; ++ranks) {
      const ClusterTimes times(flat(ranks), {.algorithm = name});
      for (const Collective collective : kCollectives) {
        const bool rooted = collective == Collective::broadcast || collective == Collective::reduce;
        if (rooted && name != "halving-doubling") continue;  // chains are pipelined; bruck has none
        const algorithm::Program program = make_program(find_algorithm(name), collective, {.ranks = ranks});
        for (const std::int64_t bytes : kSizes) {
          expect_same(times.seconds(collective, bytes), program_seconds(program, kLink, bytes),
                      program.name + " of " + std::to_string(ranks));
        }
      }
    }
  }
}

// Of a tree's start-ups only those of the first blocks count, of its bytes all: each bound alone.
TEST(FlatClusterTimes, OfDoubleTreesBoundTheirPrograms) {
  const algorithm::Algorithm& tree = find_algorithm("double-tree");
  constexpr int kBlocks = 400;
  for (int ranks = 2; ranks <= 33; ++ranks) {
    const ClusterTimes times(flat(ranks), {.algorithm = "double-tree"});
    const double start_up = times.seconds(Collective::broadcast, 0);
    const auto short_program = make_program(tree, Collective::broadcast, {.ranks = ranks, .blocks = 2});
    EXPECT_LE(program_seconds(short_program, kLink, 0), start_up * (1 + 1e-9)) << ranks;
    EXPECT_GE(program_seconds(short_program, kLink, 0), start_up / 2 * (1 - 1e-9)) << ranks;

    const auto long_program = make_program(tree, Collective::broadcast, {.ranks = ranks, .blocks = kBlocks});
    const Link free_of_start_up{.beta_seconds_per_byte = kLink.beta_seconds_per_byte};
    const double bytes_alone = times.seconds(Collective::broadcast, 1 << 20) - start_up;
    const double played = program_seconds(long_program, free_of_start_up, 1 << 20);
    EXPECT_NEAR(played / bytes_alone, 1, 14.0 / kBlocks) << ranks;
    expect_same(times.seconds(Collective::all_reduce, 1000), 2 * times.seconds(Collective::broadcast, 1000),
                "all-reduce");
    expect_same(times.seconds(Collective::reduce_scatter, 1000), times.seconds(Collective::broadcast, 1000),
                "reduce");
  }
}

// Nodes on a flat network: as many cards as ranks, nothing shared.
TEST(HierarchicalTimes, AreThoseOfTheProgramsWhereNothingIsShared) {
  for (const int inside : {2, 3, 4, 8}) {
    for (const int nodes : {2, 3, 5, 8}) {
      const Cluster cluster{.name = "nodes",
                            .dimensions = {{.name = "node", .size = inside, .link = kLink},
                                           {.name = "rail", .size = nodes, .link = kLink, .links = inside}}};
      for (const std::string within : {"ring", "halving-doubling", "bruck"}) {
        for (const std::string across : {"ring", "halving-doubling", "bruck"}) {
          ClusterTimes times(cluster, {.algorithm = "hierarchical:" + within + "," + across});
          for (const Collective collective :
               {Collective::reduce_scatter, Collective::all_gather, Collective::all_reduce}) {
            const algorithm::Program program =
                hierarchical(find_algorithm(within), find_algorithm(across), collective, nodes, inside);
            for (const std::int64_t bytes : {0, 1000, 9'000'001}) {
              // A member's cards add up to `inside` links, and each rank gathers 1/inside of the vector.
              expect_same(times.seconds(collective, bytes), program_seconds(program, kLink, bytes),
                          program.name);
            }
          }
        }
      }
    }
  }
}

// 4 ranks a node at 1 s a message and 1 s a byte, 3 nodes at 10 s a message and 4 s a byte through 2 cards, 2
// pods at 100 s a message and 5 s a byte through one card, of which a third gets through.
Cluster pods() {
  return {.name = "pods",
          .dimensions = {{.name = "node", .size = 4, .link = {1, 1}},
                         {.name = "rail", .size = 3, .link = {10, 4}, .links = 2},
                         {.name = "spine", .size = 2, .link = {100, 5}, .oversubscription = 3}}};
}

TEST(HierarchicalTimes, CanBeAddedUpWithAPencil) {
  // 4 ranks exchange 24 bytes: 3 messages of 6. In a node each rank then has 6, of which it sends 2 messages
  // of 2 through half a card: 8 s a byte. In a pod each rank has 2, and sends one of 1 through a twelfth of a
  // card, of which a third gets through: 180 s a byte.
  const double half = 3 * (1 + 6 * 1) + 2 * (10 + 2 * 8) + (100 + 1 * 180);
  EXPECT_DOUBLE_EQ(seconds(pods(), "hierarchical:ring,ring,ring", Collective::reduce_scatter, 24), half);
  EXPECT_DOUBLE_EQ(seconds(pods(), "hierarchical:ring,ring,ring", Collective::all_reduce, 24), 2 * half);
  // Halving: messages of 12 and 6.
  EXPECT_DOUBLE_EQ(seconds(pods(), "hierarchical:halving-doubling,ring,ring", Collective::all_gather, 24),
                   half - 1);
  // Chains, the outermost first: 1 hop, 2 hops, 3 hops.
  EXPECT_DOUBLE_EQ(seconds(pods(), "hierarchical:ring,ring,ring", Collective::broadcast, 24),
                   (100 + 24 * 15) + (2 * 10 + 24 * 2) + (3 * 1 + 24 * 1));
}

TEST(FlatAlgorithms, CrossADimensionOnceInEachDirection) {
  // 23 rounds, each as slow as the spine.
  EXPECT_DOUBLE_EQ(seconds(pods(), "ring", Collective::reduce_scatter, 24), 23 * (100 + 15));
  EXPECT_DOUBLE_EQ(seconds(pods(), "ring", Collective::broadcast, 24), 23 * 100 + 24 * 15);
  // Trees of 2, 2 and 1 levels.
  EXPECT_DOUBLE_EQ(seconds(pods(), "double-tree", Collective::broadcast, 24),
                   2 * (2 * 1 + 2 * 10 + 1 * 100) + 24 * 15);
}

TEST(FlatAlgorithms, ARingOverThePapersClusterIsTheFlatOne) {
  for (const std::string network : {"10gbe", "100gbib"}) {
    const CollectiveTimes times = times_on(find_cluster(network + "-64"), {.algorithm = "ring"});
    const CollectiveTimes formulas = ring_times(parse_network(network).link, 64);
    for (const std::int64_t bytes : kSizes) {
      EXPECT_DOUBLE_EQ(times.reduce_scatter(bytes), formulas.reduce_scatter(bytes));
      EXPECT_DOUBLE_EQ(times.all_reduce(bytes), formulas.all_reduce(bytes));
    }
  }
}

TEST(FullMesh, SendsToAllAtOnce) {
  const Cluster mesh{
      .name = "mesh",
      .dimensions = {{.name = "node", .size = 8, .wiring = Wiring::full_mesh, .link = {5, 2}}}};
  EXPECT_DOUBLE_EQ(seconds(mesh, "direct", Collective::reduce_scatter, 24), 5 + 2 * 3);
  EXPECT_DOUBLE_EQ(seconds(mesh, "direct", Collective::broadcast, 24), 2 * (5 + 2 * 3));
  EXPECT_DOUBLE_EQ(seconds(mesh, "ring", Collective::reduce_scatter, 24), 7 * (5 + 2 * 3));
  EXPECT_EQ(ClusterTimes(mesh).choose(Collective::all_reduce, 24).algorithm, "direct");
}

TEST(RingWiring, HasARingAlone) {
  Cluster ring = flat(8);
  ring.dimensions[0].wiring = Wiring::ring;
  EXPECT_EQ(ClusterTimes(ring).choose(Collective::all_reduce, 1).algorithm, "ring");
  EXPECT_DOUBLE_EQ(times_on(ring).message_seconds, 4 * kLink.alpha_seconds);
  for (const std::string name : {"halving-doubling", "double-tree", "direct", "hierarchical:bruck"}) {
    EXPECT_THAT([&] { ClusterTimes(ring, {.algorithm = name}); },
                ThrowsMessage<ConfigError>(HasSubstr("cluster 'flat' has no algorithm '" + name + "'")));
  }
}

TEST(Choosing, TakesTheFastestForTheSize) {
  // 12 ranks: few start-ups for small sizes, few bytes for large ones.
  const ClusterTimes all_reduce(flat(12));
  EXPECT_EQ(all_reduce.choose(Collective::all_reduce, 1).algorithm, "bruck");
  Cluster slow_start = pods();
  slow_start.dimensions[2].link.alpha_seconds = 1e6;
  // A flat ring crosses the spine 23 times, a hierarchy once.
  EXPECT_THAT(ClusterTimes(slow_start).choose(Collective::reduce_scatter, 24).algorithm,
              HasSubstr("hierarchical:"));
  Cluster slow_card = pods();
  slow_card.dimensions[0].link.beta_seconds_per_byte = 15;
  // Where the inside is no faster than the outside, a hierarchy carries the bytes twice.
  EXPECT_EQ(ClusterTimes(slow_card).choose(Collective::reduce_scatter, 1 << 30).algorithm, "ring");
}

// Nodes of 2 ranks, 1 s a message and 1 s a byte inside; 4 of them, 5 s and 2 s between. P = 8.
Cluster pairs() {
  return {
      .name = "pairs",
      .dimensions = {{.name = "node", .size = 2, .link = {.alpha_seconds = 1, .beta_seconds_per_byte = 1}},
                     {.name = "rail", .size = 4, .link = {.alpha_seconds = 5, .beta_seconds_per_byte = 2}}}};
}

// From rank 0 to rank 7 there are 3 hops between nodes and 4 inside: 3 · 5 + 4 · 1. Of 80 bytes 7/8 go over
// the slowest link: 140.
TEST(PipelinedRing, AddsUpTheStartUpsOfItsHops) {
  const ClusterTimes times(pairs(), {.algorithm = "pipelined-ring"});
  EXPECT_DOUBLE_EQ(times.seconds(Collective::reduce_scatter, 0), 19);
  EXPECT_DOUBLE_EQ(times.seconds(Collective::all_gather, 80), 19 + 140);
  EXPECT_DOUBLE_EQ(times.seconds(Collective::all_reduce, 80), 2 * (19 + 140));
  EXPECT_DOUBLE_EQ(times.seconds(Collective::broadcast, 80), 19 + 160);
  EXPECT_EQ(times.choose(Collective::all_reduce, 80).algorithm, "pipelined-ring");
}

TEST(PipelinedRing, IsTheRingWhereAllHopsAreAlike) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const Collective collective : kCollectives)
      for (const std::int64_t bytes : kSizes)
        EXPECT_DOUBLE_EQ(seconds(flat(ranks), "pipelined-ring", collective, bytes),
                         seconds(flat(ranks), "ring", collective, bytes));
}

// On few nodes a ring starts sooner: a tree takes 2 · (2 · 1 · 1 + 2 · 2 · 5) = 44 s, a ring 2 · 19.
TEST(Nccl, ChoosesBetweenRingAndTreeForAnAllReduceAlone) {
  const ClusterTimes few(pairs(), {.algorithm = "nccl"});
  EXPECT_EQ(few.choose(Collective::all_reduce, 0).algorithm, "pipelined-ring");
  EXPECT_DOUBLE_EQ(few.seconds(Collective::all_reduce, 0), 38);
  Cluster many = pairs();
  many.dimensions[1].size = 16;
  // Ring: 2 · (15 · 5 + 16 · 1) = 182 and 2 · 31/32 · 2 a byte; tree: 2 · (2 · 1 + 2 · 4 · 5) = 84 and 4 a
  // byte. They meet at (182 − 84) / (4 − 3.875) = 784 bytes.
  const ClusterTimes times(many, {.algorithm = "nccl"});
  EXPECT_DOUBLE_EQ(times.seconds(Collective::all_reduce, 0), 84);
  EXPECT_EQ(times.choose(Collective::all_reduce, 783).algorithm, "double-tree");
  EXPECT_EQ(times.choose(Collective::all_reduce, 785).algorithm, "pipelined-ring");
  EXPECT_EQ(times.choose(Collective::reduce_scatter, 0).algorithm, "pipelined-ring");
}

TEST(Launch, IsTheLeastStartUpOfACollective) {
  Cluster cluster = pairs();
  cluster.software.launch_seconds = 30;
  for (const char* const algorithm : {"pipelined-ring", "nccl"}) {
    EXPECT_DOUBLE_EQ(seconds(cluster, algorithm, Collective::reduce_scatter, 80), 30 + 140) << algorithm;
    EXPECT_DOUBLE_EQ(seconds(cluster, algorithm, Collective::all_reduce, 80), 38 + 280) << algorithm;
  }
  // Whatever starts sooner saves nothing, so what carries bytes faster is chosen: a ring over all, 7 · 5 s.
  EXPECT_DOUBLE_EQ(seconds(cluster, "auto", Collective::all_gather, 1 << 20),
                   seconds(pairs(), "auto", Collective::all_gather, 1 << 20));
  cluster.software.launch_seconds = 1000;
  EXPECT_DOUBLE_EQ(seconds(cluster, "auto", Collective::all_reduce, 0), 1000);
  EXPECT_DOUBLE_EQ(seconds(with_ranks(cluster, 1), "auto", Collective::all_reduce, 0), 0);
  const CollectiveTimes times = times_on(cluster, {.algorithm = "hierarchical"});
  EXPECT_EQ(times.launch_seconds, 1000);
  EXPECT_DOUBLE_EQ(times.nodes->inside.all_reduce(0), 1000);
  EXPECT_DOUBLE_EQ(times.nodes->across.all_reduce(0), 1000);
}

TEST(Choosing, TakesWhatIsAskedFor) {
  const auto chosen = [](const std::string& name) {
    return ClusterTimes(pods(), {.algorithm = name}).choose(Collective::reduce_scatter, 1 << 20).algorithm;
  };
  EXPECT_EQ(chosen("ring"), "ring");
  EXPECT_EQ(chosen("double-tree"), "double-tree");
  EXPECT_EQ(chosen("halving-doubling"), "hierarchical:halving-doubling,halving-doubling,halving-doubling");
  EXPECT_EQ(chosen("hierarchical:bruck,ring,ring"), "hierarchical:bruck,ring,ring");
  EXPECT_EQ(chosen("hierarchical:*,halving-doubling,*"),
            "hierarchical:halving-doubling,halving-doubling,ring");
  EXPECT_THAT(chosen("hierarchical"), HasSubstr("hierarchical:"));
}

TEST(Choosing, RefusesWhatThereIsNot) {
  for (const std::string name :
       {"", "tree", "direct", "hierarchical:", "hierarchical:ring,ring", "hierarchical:ring,ring,ring,ring",
        "hierarchical:ring,,ring", "hierarchical:ring,direct,ring"}) {
    EXPECT_THAT([&] { ClusterTimes(pods(), {.algorithm = name}); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("'pods' has no algorithm '" + name + "'"),
                                                 HasSubstr("pipelined-ring"),
                                                 HasSubstr("spine: ring, halving-doubling, bruck"))));
  }
  const ClusterTimes times(pods());
  EXPECT_THROW(static_cast<void>(times.seconds(Collective::all_reduce, -1)), ConfigError);
  EXPECT_THROW(static_cast<void>(times.seconds(Collective::all_to_all, 1)), ConfigError);
  Cluster broken = pods();
  broken.dimensions[1].links = 0;
  EXPECT_THROW(ClusterTimes{broken}, ConfigError);
}

TEST(ClusterTimes, OfOneRankAreNothing) {
  for (const std::string name : {"auto", "ring", "double-tree", "hierarchical", "bruck"}) {
    for (const Collective collective : kCollectives) {
      EXPECT_EQ(seconds(with_ranks(pods(), 1), name, collective, 1 << 20), 0) << name;
    }
  }
  EXPECT_EQ(times_on(flat(1)).message_seconds, 0);
}

TEST(ClusterTimes, DoNotDependOnDimensionsOfOneMember) {
  Cluster cluster = pods();
  cluster.dimensions.insert(cluster.dimensions.begin() + 1,
                            {.name = "alone", .size = 1, .wiring = Wiring::ring, .link = {1000, 1000}});
  for (const Collective collective : kCollectives) {
    EXPECT_EQ(ClusterTimes(cluster).choose(collective, 24).seconds,
              ClusterTimes(pods()).choose(collective, 24).seconds);
  }
  EXPECT_EQ(times_on(cluster).message_seconds, 100);
}

class RandomCluster {
 public:
  explicit RandomCluster(unsigned seed) : random_(seed) {}

  Cluster next() {
    Cluster cluster{.name = "random", .dimensions = {}};
    const int dimensions = between(1, 4);
    for (int i = 0; i < dimensions; ++i) {
      const auto wiring = static_cast<Wiring>(between(0, 2));
      cluster.dimensions.push_back(
          {.name = "d" + std::to_string(i),
           .size = between(1, 9),
           .wiring = wiring,
           .link = {.alpha_seconds = between(0, 100) * 1e-6, .beta_seconds_per_byte = between(0, 50) * 1e-10},
           .links = between(1, 8),
           .oversubscription = wiring == Wiring::switched ? 1 + between(0, 4) / 2.0 : 1});
    }
    return cluster;
  }
  int between(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }

 private:
  std::mt19937 random_;
};

constexpr int kRounds = 300;

TEST(RandomClusters, NeverGetSlowerWithFewerBytesOrMoreBandwidth) {
  RandomCluster random(1);
  for (int round = 0; round < kRounds; ++round) {
    const Cluster cluster = random.next();
    Cluster better = cluster;
    Dimension& improved = better.dimensions[static_cast<std::size_t>(
        random.between(0, static_cast<int>(better.dimensions.size()) - 1))];
    improved.link.beta_seconds_per_byte *= 0.7;
    improved.link.alpha_seconds *= 0.9;
    improved.links += random.between(0, 2);
    improved.oversubscription = 1;
    for (const std::string name : {"auto", "ring", "hierarchical"}) {
      const ClusterTimes times(cluster, {.algorithm = name});
      const ClusterTimes better_times(better, {.algorithm = name});
      for (const Collective collective : kCollectives) {
        double smaller = 0;
        for (const std::int64_t bytes : kSizes) {
          const double now = times.seconds(collective, bytes);
          EXPECT_GE(now, smaller);
          EXPECT_LE(better_times.seconds(collective, bytes), now * (1 + 1e-12));
          smaller = now;
        }
      }
    }
  }
}

TEST(RandomClusters, TheChosenIsTheFastestAndCanBeAskedFor) {
  RandomCluster random(2);
  for (int round = 0; round < kRounds; ++round) {
    const Cluster cluster = random.next();
    const ClusterTimes times(cluster);
    for (const Collective collective : kCollectives) {
      for (const std::int64_t bytes : kSizes) {
        const ChosenTime chosen = times.choose(collective, bytes);
        EXPECT_EQ(chosen.seconds, times.seconds(collective, bytes));
        EXPECT_EQ(chosen.seconds, seconds(cluster, chosen.algorithm, collective, bytes)) << chosen.algorithm;
        EXPECT_LE(chosen.seconds, seconds(cluster, "ring", collective, bytes));
        EXPECT_LE(chosen.seconds, seconds(cluster, "hierarchical", collective, bytes));
      }
    }
  }
}

// Inside a node of 4 ranks a half takes 3/4 of the bytes; across 8 nodes that share 2 links each, 7/8 of them
// at half the beta, and an all-reduce twice that, however many ranks of a node take part.
TEST(TimesOn, NodesAreTheInnermostDimension) {
  const Cluster cluster{
      .name = "nodes",
      .dimensions = {{.name = "node", .size = 4, .link = {.alpha_seconds = 1, .beta_seconds_per_byte = 0.01}},
                     {.name = "network",
                      .size = 8,
                      .link = {.alpha_seconds = 10, .beta_seconds_per_byte = 0.1},
                      .links = 2}}};
  for (const char* const algorithm : {"ring", "hierarchical:ring,ring"}) {
    SCOPED_TRACE(algorithm);
    const CollectiveTimes times = times_on(cluster, {.algorithm = algorithm});
    EXPECT_EQ(times.ranks_of_node(), 4);
    ASSERT_NE(times.nodes, nullptr);
    EXPECT_DOUBLE_EQ(times.nodes->inside.all_gather(800), 3 * 1 + 0.75 * 800 * 0.01);
    EXPECT_EQ(times.nodes->across.ranks, 8);
    EXPECT_DOUBLE_EQ(times.nodes->across.all_reduce(800), 2 * (7 * 10 + 0.875 * 800 * 0.05));
  }
  EXPECT_EQ(times_on(flat_cluster({.name = "flat", .link = {}}, 8)).nodes, nullptr);
  EXPECT_EQ(times_on(flat_cluster({.name = "flat", .link = {}}, 8)).ranks_of_node(), 1);
}

}  // namespace
}  // namespace dear::cost::cluster_times_test
