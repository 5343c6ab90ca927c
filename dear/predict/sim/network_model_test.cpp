#include "dear/predict/sim/network_model.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/sim/fabric_network.h"
#include "dear/predict/sim/ranks.h"
#include "dear/schedule/policies/policy.h"

namespace dear::sim::network_model_test {
namespace {

using ::testing::ElementsAre;

struct Through {
  StepId step;
  int rank;
  double seconds;
  friend bool operator==(const Through&, const Through&) = default;
};

std::vector<Through> run(NetworkModel& network) {
  std::vector<Through> all;
  std::vector<Visit> through;
  for (double now = network.next_seconds(); now != NetworkModel::kNever; now = network.next_seconds()) {
    through.clear();
    network.advance(through);
    for (const auto& [which, rank] : through) all.push_back({which.step, rank, now});
  }
  std::sort(all.begin(), all.end(), [](const Through& a, const Through& b) {
    return std::pair(a.step, a.rank) < std::pair(b.step, b.rank);
  });
  return all;
}

// One second a message, four bytes a second.
fabric::Topology network_of(int ranks) {
  return fabric::Topology(
      flat_cluster({.name = "flat", .link = {.alpha_seconds = 1, .beta_seconds_per_byte = 0.25}}, ranks));
}

TransportOf ring_of(int ranks, double bytes, double start_up_seconds = 0) {
  return [=](StepId) {
    return Transport{.rounds = fabric::ring_rounds(Collective::all_gather, ranks),
                     .bytes = bytes,
                     .start_up_seconds = start_up_seconds};
  };
}

TEST(ClosedFormNetwork, BeginsWithTheLastAndEndsForAllAtOnce) {
  const std::vector<double> seconds = {3, 10};
  ClosedFormNetwork network(seconds, 2);
  network.enter({{0, 0}, 1}, 1);
  EXPECT_EQ(network.next_seconds(), NetworkModel::kNever);
  network.enter({{1, 0}, 0}, 1);
  network.enter({{0, 0}, 0}, 2);
  network.enter({{1, 0}, 1}, 4);
  EXPECT_THAT(run(network),
              ElementsAre(Through{0, 0, 5}, Through{0, 1, 5}, Through{1, 0, 14}, Through{1, 1, 14}));
}

// Two rounds of 12 / 3 bytes: 2 x (1 + 1).
TEST(FabricNetwork, PlaysTheRoundsOfARing) {
  const fabric::Topology topology = network_of(3);
  FabricNetwork network(topology, ring_of(3, 12));
  for (int rank = 0; rank < 3; ++rank) network.enter({{7, 2}, rank}, 10);
  EXPECT_THAT(run(network), ElementsAre(Through{7, 0, 14}, Through{7, 1, 14}, Through{7, 2, 14}));
  EXPECT_EQ(network.messages(), 6U);
}

TEST(FabricNetwork, WaitsForWhoComesLateAndForTheStartUp) {
  const fabric::Topology topology = network_of(2);
  FabricNetwork network(topology, ring_of(2, 8, 5));
  network.enter({{0, 0}, 0}, 0);
  network.enter({{0, 0}, 1}, 3);
  EXPECT_THAT(run(network), ElementsAre(Through{0, 0, 3 + 5 + 2}, Through{0, 1, 3 + 5 + 2}));
}

// Five rounds of 4 bytes. Over a card a message takes 2 + 2 s, and ranks at it are through at 5 x 4. One in
// the middle of a node begins its last round when its neighbours begin theirs, at 4 x 4, and its messages
// take 1 s.
TEST(FabricNetwork, LetsEachRankGoByItself) {
  const fabric::Topology topology(
      {.name = "nodes",
       .dimensions = {
           {.name = "node", .size = 3, .link = {.alpha_seconds = 0, .beta_seconds_per_byte = 0.25}},
           {.name = "card", .size = 2, .link = {.alpha_seconds = 2, .beta_seconds_per_byte = 0.5}}}});
  FabricNetwork network(topology, ring_of(6, 24));
  for (int rank = 0; rank < 6; ++rank) network.enter({{0, 0}, rank}, 0);
  const std::vector<Through> all = run(network);
  ASSERT_EQ(all.size(), 6U);
  for (const int at_the_border : {0, 2, 3, 5}) EXPECT_DOUBLE_EQ(all[at_the_border].seconds, 20);
  for (const int inside : {1, 4}) EXPECT_DOUBLE_EQ(all[inside].seconds, 17);
}

// 8 bytes each way take 2 s after the latency; two collectives at once take 4.
TEST(FabricNetwork, CollectivesAtOneTimeShareLinks) {
  const fabric::Topology topology = network_of(2);
  for (const int collectives : {1, 2, 3}) {
    FabricNetwork network(topology, ring_of(2, 16));
    for (StepId step = 0; step < static_cast<StepId>(collectives); ++step)
      for (int rank = 0; rank < 2; ++rank) network.enter({{step, 0}, rank}, 0);
    for (const Through& through : run(network)) EXPECT_DOUBLE_EQ(through.seconds, 1 + 2 * collectives);
  }
}

// A rank's share of a ring travels as one message: (P-1)/P of the vector, twice for an all-reduce.
TEST(FabricNetwork, OneFlowCarriesWhatARingDoes) {
  for (const int ranks : {2, 3, 8}) {
    for (const auto& [collective, halves] : {std::pair{Collective::reduce_scatter, 1},
                                             {Collective::all_gather, 1},
                                             {Collective::all_reduce, 2}}) {
      const auto rounds = one_flow_rounds(collective, ranks);
      ASSERT_EQ(rounds->rounds(), 1);
      fabric::Exchange exchange;
      rounds->exchange(0, ranks - 1, exchange);
      const double share = static_cast<double>(halves * (ranks - 1)) / ranks;
      EXPECT_THAT(exchange.sends, ElementsAre(fabric::Message{.peer = 0, .share = share}));
      EXPECT_THAT(exchange.receives, ElementsAre(fabric::Message{.peer = ranks - 2, .share = share}));
    }
  }
  EXPECT_EQ(one_flow_rounds(Collective::all_reduce, 1)->rounds(), 0);
  const auto chain = one_flow_rounds(Collective::broadcast, 3);
  const auto exchange_of = [&](int rank) {
    fabric::Exchange exchange;
    chain->exchange(0, rank, exchange);
    return exchange;
  };
  EXPECT_THAT(exchange_of(0).sends, ElementsAre(fabric::Message{.peer = 1, .share = 1}));
  EXPECT_TRUE(exchange_of(0).receives.empty());
  EXPECT_THAT(exchange_of(2).receives, ElementsAre(fabric::Message{.peer = 1, .share = 1}));
  EXPECT_TRUE(exchange_of(2).sends.empty());
}

// Two layers, forward 1 + 1 and backward 1 + 1, all-reduces of 3 s each: the first iteration commits at 4.
// Backward of the second layer ends at 3, so reductions end at 6 and 9, and the next forward begins at 9.
TEST(DriveRanks, SaysWhenEachRankCommits) {
  const Workload workload{.name = "two",
                          .tensors = {{.name = "a", .elements = 1}, {.name = "b", .elements = 1}},
                          .layers = {{.name = "first", .tensors = {0}}, {.name = "second", .tensors = {1}}}};
  const Schedule schedule = make_wfbp(workload, group(workload, PerLayer{}));
  std::vector<double> seconds(schedule.steps().size(), 0);
  for (StepId step = 0; step < seconds.size(); ++step) {
    const Work& work = schedule.steps()[step].work;
    if (std::holds_alternative<Communicate>(work)) seconds[step] = 3;
    if (std::holds_alternative<Forward>(work) || std::holds_alternative<Backward>(work)) seconds[step] = 1;
  }
  ClosedFormNetwork network(seconds, 2);
  const RanksResult result =
      drive_ranks(schedule, 3, 2, [&](int, Instance which) { return seconds[which.step]; }, network);
  EXPECT_THAT(result.commit_seconds, ElementsAre(ElementsAre(4, 13, 22), ElementsAre(4, 13, 22)));
  EXPECT_EQ(result.spans.size(), 3 * schedule.steps().size());
}

TEST(DriveRanks, SaysWhenNothingCanGoOn) {
  const Workload workload{
      .name = "one", .tensors = {{.name = "a", .elements = 1}}, .layers = {{.name = "only", .tensors = {0}}}};
  const Schedule schedule = make_wfbp(workload, group(workload, PerLayer{}));
  const std::vector<double> seconds(schedule.steps().size(), 1);
  const auto own = [](int, Instance) { return 1.0; };
  ClosedFormNetwork waits_for_three(seconds, 3);
  EXPECT_THROW(drive_ranks(schedule, 4, 2, own, waits_for_three), Error);
  ClosedFormNetwork of_none(seconds, 0);
  EXPECT_THROW(drive_ranks(schedule, 4, 0, own, of_none), ConfigError);
}

}  // namespace
}  // namespace dear::sim::network_model_test
