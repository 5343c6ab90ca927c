#include "dear/platform/fabric/play.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gmock/gmock.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/testing/grid_program.h"

namespace dear::fabric::play_test {
namespace {

using algorithm::find_algorithm;
using algorithm::make_program;
using testing::DoubleNear;
using testing::ElementsAre;

constexpr Link kLink{.alpha_seconds = 30e-6, .beta_seconds_per_byte = 8e-10};
constexpr double kBytes = 9'000'001;

Topology flat(int ranks, const Link& link = kLink) {
  return Topology({.name = "flat", .dimensions = {{.name = "ranks", .size = ranks, .link = link}}});
}

Topology two_levels(int nodes, int ranks_per_node, const Link& inside, const Link& across,
                    double oversubscription = 1) {
  return Topology(
      {.name = "two levels",
       .dimensions = {
           {.name = "node", .size = ranks_per_node, .link = inside},
           {.name = "rack", .size = nodes, .link = across, .oversubscription = oversubscription}}});
}

double seconds(const char* name, Collective collective, int ranks) {
  return play(make_program(find_algorithm(name), collective, {.ranks = ranks}), flat(ranks), kBytes).seconds;
}

TEST(Rounds, UnstoredOnesAreThoseOfThePrograms) {
  for (const char* name : {"ring", "pairwise"}) {
    const algorithm::Algorithm& way = find_algorithm(name);
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather,
                                        Collective::all_reduce, Collective::all_to_all}) {
      for (int ranks = 1; algorithm::has(way, collective) && ranks <= 33; ++ranks) {
        const auto stored = rounds_of(make_program(way, collective, {.ranks = ranks}));
        const auto unstored = make_rounds(way, collective, {.ranks = ranks});
        ASSERT_EQ(unstored->ranks(), ranks);
        ASSERT_EQ(unstored->rounds(), stored->rounds());
        Exchange expected;
        Exchange found;
        for (int round = 0; round < stored->rounds(); ++round) {
          for (int rank = 0; rank < ranks; ++rank) {
            stored->exchange(round, rank, expected);
            unstored->exchange(round, rank, found);
            ASSERT_EQ(found.sends, expected.sends) << name << ", round " << round << ", rank " << rank;
            ASSERT_EQ(found.receives, expected.receives) << name << ", round " << round << ", rank " << rank;
          }
        }
      }
    }
  }
}

TEST(Rounds, AlongALineAreThoseOfItsProgram) {
  for (const std::string_view name : algorithm::line_algorithms()) {
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
      for (int members = 1; members <= 9; ++members) {
        const auto stored = rounds_of(algorithm::line_program(name, collective, members));
        const auto rounds = line_rounds(name, collective, members);
        ASSERT_EQ(rounds->ranks(), members);
        ASSERT_EQ(rounds->rounds(), stored->rounds());
        Exchange expected;
        Exchange found;
        for (int round = 0; round < stored->rounds(); ++round) {
          for (int member = 0; member < members; ++member) {
            stored->exchange(round, member, expected);
            rounds->exchange(round, member, found);
            ASSERT_THAT(found.sends, testing::UnorderedElementsAreArray(expected.sends)) << name;
            ASSERT_THAT(found.receives, testing::UnorderedElementsAreArray(expected.receives)) << name;
          }
        }
      }
    }
  }
  EXPECT_THROW(line_rounds("telepathy", Collective::all_gather, 4), ConfigError);
  EXPECT_THROW(line_rounds("ring", Collective::all_reduce, 4), ConfigError);
}

TEST(Rounds, OverAGridAreThoseOfItsProgram) {
  const std::vector<std::string_view> algorithms{"ring", "halving-doubling", "direct"};
  const algorithm::Grid grid{{4, 3, 2}};
  for (const Collective collective :
       {Collective::reduce_scatter, Collective::all_gather, Collective::all_reduce}) {
    std::vector<int> order{0, 1, 2};
    do {
      const auto stored = rounds_of(algorithm::testing::grid_program(grid, order, algorithms, collective));
      const auto rounds = grid_rounds(grid, order, algorithms, collective);
      ASSERT_EQ(rounds->ranks(), 24);
      ASSERT_EQ(rounds->rounds(), stored->rounds());
      const auto sorted = [](std::vector<Message> messages) {
        for (Message& message : messages) message.share = std::round(message.share * 1e9);
        std::sort(messages.begin(), messages.end(),
                  [](const Message& a, const Message& b) { return a.peer < b.peer; });
        return messages;
      };
      Exchange expected;
      Exchange found;
      for (int round = 0; round < stored->rounds(); ++round) {
        for (int rank = 0; rank < 24; ++rank) {
          stored->exchange(round, rank, expected);
          rounds->exchange(round, rank, found);
          ASSERT_EQ(sorted(found.sends), sorted(expected.sends)) << round << ", " << rank;
          ASSERT_EQ(sorted(found.receives), sorted(expected.receives)) << round << ", " << rank;
        }
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
  EXPECT_EQ(grid_rounds({{1}}, {}, {"ring"}, Collective::all_reduce)->rounds(), 0);
  EXPECT_THROW(grid_rounds(grid, {0, 1}, algorithms, Collective::all_reduce), ConfigError);
  EXPECT_THROW(grid_rounds(grid, {0, 1, 2}, {"ring"}, Collective::all_reduce), ConfigError);
  EXPECT_THROW(grid_rounds(grid, {0, 1, 2}, algorithms, Collective::broadcast), ConfigError);
}

// What a message between two ranks has, from plain loops over an all-to-all-v's matrix.
TEST(Rounds, OfAnAllToAllVCarryEachPairOnce) {
  std::mt19937 generator(5);
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int chunks : {0, 3}) {
      algorithm::PairBytes pairs{.ranks = ranks, .chunks = chunks, .bytes = {}};
      for (int pair = 0; pair < ranks * ranks; ++pair)
        pairs.bytes.push_back(generator() % 3 == 0 ? 0 : static_cast<std::int64_t>(generator() % 1000));
      std::vector<double> carried(pairs.bytes.size());
      const auto rounds = all_to_all_v_rounds(pairs);
      const auto total = static_cast<double>(pairs.total());
      Exchange mine, theirs;
      for (int round = 0; round < rounds->rounds(); ++round) {
        for (int rank = 0; rank < ranks; ++rank) {
          rounds->exchange(round, rank, mine);
          for (const Message& sent : mine.sends) {
            rounds->exchange(round, sent.peer, theirs);
            ASSERT_THAT(theirs.receives, ElementsAre(Message{.peer = rank, .share = sent.share}));
            carried[static_cast<std::size_t>(rank * ranks + sent.peer)] += sent.share * total;
          }
        }
      }
      for (int from = 0; from < ranks; ++from) {
        for (int to = 0; to < ranks; ++to) {
          const double wanted = from == to ? 0 : static_cast<double>(pairs.at(from, to) + 8 * chunks);
          EXPECT_NEAR(carried[static_cast<std::size_t>(from * ranks + to)], wanted, 1e-6);
        }
      }
    }
  }
}

// 3 ranks, 1 s a message, 1 byte a second; see cost/all_to_all_test.cpp. Where all ranks are in nodes of
// their own behind a switch that carries a third, 1 byte a second, what meets in it shares that.
TEST(Play, AnAllToAllVSharesLinks) {
  const Link link{.alpha_seconds = 1, .beta_seconds_per_byte = 1};
  const algorithm::PairBytes pairs{.ranks = 3, .chunks = 0, .bytes = {99, 10, 0, 0, 99, 2, 0, 5, 99}};
  const auto rounds = all_to_all_v_rounds(pairs);
  const auto total = static_cast<double>(pairs.total());
  EXPECT_NEAR(play(rounds, flat(3, link), total).seconds, 17, 1e-9);
  // Both messages of round 1 at half speed: 2 bytes by 5 s, and 10 by 13 s; then 5 alone.
  EXPECT_NEAR(play(rounds, two_levels(3, 1, {}, link, 3), total).seconds, 13 + 6, 1e-9);
  EXPECT_EQ(
      play(all_to_all_v_rounds({.ranks = 2, .chunks = 0, .bytes = {4, 0, 0, 4}}), flat(2, link), 0).seconds,
      0);
  EXPECT_THROW(all_to_all_v_rounds({.ranks = 2, .bytes = {1}}), ConfigError);
}

TEST(Rounds, AreRefusedAsProgramsAre) {
  EXPECT_THROW(make_rounds(find_algorithm("ring"), Collective::all_to_all, {.ranks = 4}), ConfigError);
  EXPECT_THROW(make_rounds(find_algorithm("ring"), Collective::all_gather, {.ranks = 0}), ConfigError);
}

// (P - 1) alpha + (P - 1)/P m beta
TEST(Play, ARingTakesWhatTheFormulaSays) {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    const double expected =
        (ranks - 1) * (kLink.alpha_seconds + kBytes / ranks * kLink.beta_seconds_per_byte);
    EXPECT_NEAR(seconds("ring", Collective::reduce_scatter, ranks), expected, 1e-12);
    EXPECT_NEAR(seconds("ring", Collective::all_gather, ranks), expected, 1e-12);
    EXPECT_NEAR(seconds("ring", Collective::all_reduce, ranks), 2 * expected, 1e-12);
    EXPECT_NEAR(seconds("pairwise", Collective::all_gather, ranks), expected, 1e-12);
    EXPECT_NEAR(seconds("pairwise", Collective::all_to_all, ranks), expected, 1e-12);
  }
}

// log2 P alpha + (P - 1)/P m beta
TEST(Play, HalvingAndDoublingSaveStartUps) {
  for (int rounds = 0; rounds <= 5; ++rounds) {
    const int ranks = 1 << rounds;
    const double expected =
        rounds * kLink.alpha_seconds + (1 - 1.0 / ranks) * kBytes * kLink.beta_seconds_per_byte;
    EXPECT_NEAR(seconds("halving-doubling", Collective::reduce_scatter, ranks), expected, 1e-12) << ranks;
    EXPECT_NEAR(seconds("halving-doubling", Collective::all_gather, ranks), expected, 1e-12) << ranks;
    EXPECT_NEAR(seconds("bruck", Collective::all_gather, ranks), expected, 1e-12) << ranks;
  }
}

// A ring of ranks has a link for each neighbour, so a ring all-gather shares nothing; a partner two further
// on shares links with its neighbours. 4 ranks, 1 s a message, 1 byte a second, blocks of 4 bytes: two
// rounds, of 1 + 4 s and of 1 + 8 s on free links. In the second, ranks 0 and 1 both send over the link from
// 1 to 2.
TEST(Play, WaysThroughOtherRanksAreShared) {
  const Link link{.alpha_seconds = 1, .beta_seconds_per_byte = 1};
  const Topology ring(
      {.name = "ring", .dimensions = {{.name = "ranks", .size = 4, .wiring = Wiring::ring, .link = link}}});
  const auto on_ring = [&](const char* name) {
    return play(make_program(find_algorithm(name), Collective::all_gather, {.ranks = 4}), ring, 16).seconds;
  };
  EXPECT_EQ(on_ring("ring"), 15);
  EXPECT_EQ(on_ring("halving-doubling"), 5 + 1 + 16);
}

// 2 nodes of 4 ranks; 8 blocks of 10 bytes. Across, the 4 ranks of a node send 10 bytes each over its one
// link, 10 bytes a second: 1 + 4 s. Inside, rings of 4 with 20 bytes a message at 40 bytes a second: 3 (0.5 +
// 0.5) s.
TEST(Play, RanksOfANodeShareItsLink) {
  const Topology nodes = two_levels(2, 4, {.alpha_seconds = 0.5, .beta_seconds_per_byte = 1 / 40.0},
                                    {.alpha_seconds = 1, .beta_seconds_per_byte = 1 / 10.0});
  const algorithm::Algorithm& ring = find_algorithm("ring");
  EXPECT_NEAR(play(hierarchical(ring, ring, Collective::all_gather, 2, 4), nodes, 80).seconds, 8, 1e-12);
  EXPECT_NEAR(play(hierarchical(ring, ring, Collective::all_reduce, 2, 4), nodes, 80).seconds, 16, 1e-12);
}

// 4 nodes of one rank at 10 bytes a second through a switch that carries a quarter, 10: 4 messages of 10
// bytes take 4 s.
TEST(Play, ASwitchThatCarriesLessIsSharedByAll) {
  const Link across{.alpha_seconds = 1, .beta_seconds_per_byte = 1 / 10.0};
  const auto ring = make_rounds(find_algorithm("ring"), Collective::all_gather, {.ranks = 4});
  EXPECT_NEAR(play(ring, two_levels(4, 1, {}, across, 4), 40).seconds, 3 * (1 + 4), 1e-12);
  EXPECT_NEAR(play(ring, two_levels(4, 1, {}, across), 40).seconds, 3 * (1 + 1), 1e-12);
}

// 2 ranks in the second of 2 nodes do not care what the first does.
TEST(Play, OnSomeRanksOnly) {
  const Topology nodes = two_levels(2, 2, {.alpha_seconds = 0.5, .beta_seconds_per_byte = 1 / 40.0},
                                    {.alpha_seconds = 1, .beta_seconds_per_byte = 1 / 10.0});
  const auto pair = make_rounds(find_algorithm("ring"), Collective::all_gather, {.ranks = 2});
  EXPECT_EQ(play(pair, nodes, 40, {.ranks = {3, 2}}).seconds, 1);
  EXPECT_EQ(play(pair, nodes, 40, {.ranks = {1, 2}}).seconds, 3);
}

// A ring of 3, rounds of 1 s. Rank 0 comes at 10 s; only the messages between 1 and 2 do not wait for it. Its
// first round is through at 11 s; so are those of 1 and 2, each of which exchanges with it. All end at 12 s.
TEST(Play, WhoComesLateIsWaitedFor) {
  const Topology network = flat(3, {.alpha_seconds = 1, .beta_seconds_per_byte = 0});
  const auto ring = make_rounds(find_algorithm("ring"), Collective::all_gather, {.ranks = 3});
  EXPECT_THAT(play(ring, network, 1, {.enter_seconds = {10, 0, 0}}).end_seconds, ElementsAre(12, 12, 12));

  // Of 4 ranks in pairs (0, 1) and (2, 3), then (0, 2) and (1, 3), one latecomer holds up its own partners
  // alone.
  const auto doubling = make_rounds(find_algorithm("halving-doubling"), Collective::all_gather, {.ranks = 4});
  const Topology four = flat(4, {.alpha_seconds = 1, .beta_seconds_per_byte = 0});
  EXPECT_THAT(play(doubling, four, 1, {.enter_seconds = {0, 0, 0, 5}}).end_seconds, ElementsAre(7, 7, 7, 7));
  const auto broadcast = make_rounds(find_algorithm("ring"), Collective::broadcast, {.ranks = 4});
  EXPECT_THAT(play(broadcast, four, 1, {.enter_seconds = {0, 0, 0, 5}}).end_seconds, ElementsAre(1, 2, 6, 6));
}

TEST(Play, WithoutBytesStartUpsRemain) {
  EXPECT_DOUBLE_EQ(
      play(make_rounds(find_algorithm("ring"), Collective::all_reduce, {.ranks = 5}), flat(5), 0).seconds,
      8 * kLink.alpha_seconds);
  EXPECT_EQ(
      play(make_rounds(find_algorithm("ring"), Collective::all_reduce, {.ranks = 1}), flat(1), 1e9).seconds,
      0);
}

TEST(Play, RefusesWhatCannotBe) {
  const auto ring = make_rounds(find_algorithm("ring"), Collective::all_gather, {.ranks = 4});
  EXPECT_THROW(play(ring, flat(4), -1), ConfigError);
  EXPECT_THROW(play(ring, flat(3), 1), ConfigError);
  EXPECT_THROW(play(ring, flat(4), 1, {.ranks = {0, 1}}), ConfigError);
  EXPECT_THROW(play(ring, flat(4), 1, {.enter_seconds = {0, 1}}), ConfigError);
  algorithm::Program half = algorithm::empty_program("half", Collective::broadcast, 2, 1);
  half.add_round()[0].sends.push_back({.peer = 1, .blocks = {{.begin = 0, .end = 1}}});
  EXPECT_THROW(play(half, flat(2), 1), ScheduleError);
}

}  // namespace
}  // namespace dear::fabric::play_test
