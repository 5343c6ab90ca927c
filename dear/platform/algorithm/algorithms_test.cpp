#include "dear/platform/algorithm/algorithms.h"

#include <algorithm>
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/testing/verify.h"

namespace dear::algorithm {

void PrintTo(const Algorithm& algorithm, std::ostream* out) { *out << algorithm.name; }

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing::verify;

constexpr int kMostRanks = 33;

constexpr Collective kCollectives[] = {
    Collective::reduce_scatter, Collective::all_gather, Collective::all_reduce,  Collective::broadcast,
    Collective::reduce,         Collective::all_to_all, Collective::all_to_all_v};

// ---- Every program there is, for every number of ranks.

class EveryAlgorithm : public ::testing::TestWithParam<Algorithm> {};

TEST_P(EveryAlgorithm, GivesEachRankEachContributionOnce) {
  const Algorithm& algorithm = GetParam();
  for (const Collective collective : kCollectives) {
    for (int ranks = 1; has(algorithm, collective) && ranks <= kMostRanks; ++ranks) {
      for (const int blocks : {1, 2, 7}) {
        for (const int root : {0, ranks / 2, ranks - 1}) {
          EXPECT_NO_THROW(
              verify(make_program(algorithm, collective, {.ranks = ranks, .root = root, .blocks = blocks})));
        }
      }
    }
  }
}

TEST_P(EveryAlgorithm, ItsTwoHalvesMakeTheWhole) {
  const Algorithm& algorithm = GetParam();
  const bool by_shards = has(algorithm, Collective::all_gather);
  if (!has(algorithm, Collective::all_reduce)) {
    return;
  }
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    const Shape shape{.ranks = ranks, .blocks = 5};
    const Program whole = concatenated(
        make_program(algorithm, by_shards ? Collective::reduce_scatter : Collective::reduce, shape),
        make_program(algorithm, by_shards ? Collective::all_gather : Collective::broadcast, shape), "both");
    verify(whole);
    EXPECT_EQ(whole.rounds.size(), make_program(algorithm, Collective::all_reduce, shape).rounds.size());
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryAlgorithm, ::testing::ValuesIn(algorithms()), [](const auto& info) {
  std::string name(info.param.name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Hierarchical, AnyTwoAlgorithmsCompose) {
  for (const Algorithm& inside : algorithms()) {
    for (const Algorithm& across : algorithms()) {
      if (!has(inside, Collective::all_gather) || !has(across, Collective::all_gather)) continue;
      for (const Collective collective :
           {Collective::reduce_scatter, Collective::all_gather, Collective::all_reduce}) {
        for (int nodes = 1; nodes <= 7; ++nodes) {
          for (int local = 1; nodes * local <= kMostRanks; ++local) {
            EXPECT_NO_THROW(verify(hierarchical(inside, across, collective, nodes, local)));
          }
        }
      }
    }
  }
}

TEST(Hierarchical, RefusesWhatItDoesNotHave) {
  const Algorithm& ring = find_algorithm("ring");
  EXPECT_THROW(hierarchical(ring, ring, Collective::all_to_all, 2, 2), ConfigError);
  EXPECT_THROW(hierarchical(ring, ring, Collective::all_gather, 0, 2), ConfigError);
  EXPECT_THROW(hierarchical(find_algorithm("double-tree"), ring, Collective::all_gather, 2, 2), ConfigError);
}

// ---- What each is known for.

struct Load {
  int rounds = 0;
  int sent = 0;  // most blocks that one rank sends
  int partners = 0;
};

Load load_of(const Program& program) {
  std::vector<int> sent(static_cast<std::size_t>(program.ranks));
  Load load{.rounds = static_cast<int>(program.rounds.size())};
  for (const std::vector<Part>& round : program.rounds) {
    for (std::size_t rank = 0; rank < round.size(); ++rank) {
      load.partners = std::max(load.partners, static_cast<int>(round[rank].sends.size()));
      for (const BlockMessage& message : round[rank].sends) {
        for (const Range& blocks : message.blocks) {
          sent[rank] += blocks.size();
        }
      }
    }
  }
  load.sent = *std::max_element(sent.begin(), sent.end());
  return load;
}

TEST(Algorithms, SendAsFewBlocksAsCanBe) {
  for (int ranks = 2; ranks <= kMostRanks; ++ranks) {
    for (const char* name : {"ring", "pairwise", "bruck"}) {
      for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
        const Load load = load_of(make_program(find_algorithm(name), collective, {.ranks = ranks}));
        EXPECT_EQ(load.sent, ranks - 1) << name << ", " << ranks;
        EXPECT_EQ(load.partners, 1) << name << ", " << ranks;
      }
    }
  }
}

TEST(Algorithms, TakeTheLogarithmOfRoundsWhereTheySayIt) {
  for (int ranks = 2; ranks <= kMostRanks; ++ranks) {
    int up = 0;
    while ((1 << up) < ranks) ++up;
    const bool power = (1 << up) == ranks;
    EXPECT_EQ(load_of(bruck_all_gather(ranks)).rounds, up) << ranks;
    EXPECT_EQ(load_of(doubling_all_gather(ranks)).rounds, power ? up : up + 1) << ranks;
    EXPECT_EQ(load_of(ring_all_gather(ranks)).rounds, ranks - 1) << ranks;
  }
}

TEST(DoubleTree, NobodySendsMuchMoreThanTheVector) {
  constexpr int kBlocks = 64;
  for (int ranks = 2; ranks <= kMostRanks; ++ranks) {
    const Load load = load_of(double_tree_broadcast(ranks, kBlocks));
    EXPECT_LE(load.sent, kBlocks) << ranks;
    int depth = 0;
    while ((1 << depth) < ranks) ++depth;
    EXPECT_LE(load.rounds, kBlocks + 2 * depth) << ranks;
    EXPECT_EQ(load.partners, 1) << ranks;
  }
}

// ---- The table.

TEST(Algorithms, AreFoundByName) {
  EXPECT_EQ(find_algorithm("bruck").name, "bruck");
  EXPECT_THAT([] { find_algorithm("rings"); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("'rings'"), HasSubstr("double-tree"))));
}

TEST(Algorithms, RefuseWhatCannotBe) {
  const Algorithm& ring = find_algorithm("ring");
  EXPECT_THAT([&] { make_program(find_algorithm("bruck"), Collective::broadcast, {.ranks = 4}); },
              ThrowsMessage<ConfigError>("algorithm bruck has no broadcast"));
  EXPECT_THROW(make_program(ring, Collective::all_gather, {.ranks = 0}), ConfigError);
  EXPECT_THROW(make_program(ring, Collective::broadcast, {.ranks = 2, .root = 2}), ConfigError);
  EXPECT_THROW(make_program(ring, Collective::broadcast, {.ranks = 2, .blocks = 0}), ConfigError);
  const Program gather = ring_all_gather(3);
  EXPECT_THROW(concatenated(gather, gather, "twice"), ConfigError);
  EXPECT_THROW(reversed(pairwise_all_to_all(3, 1), "back"), ConfigError);
}

}  // namespace
}  // namespace dear::algorithm
