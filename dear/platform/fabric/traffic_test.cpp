#include "dear/platform/fabric/traffic.h"

#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/fabric/play.h"

namespace dear::fabric::traffic_test {
namespace {

using algorithm::find_algorithm;

Topology flat(int ranks, double alpha_seconds, double beta) {
  return Topology(
      {.name = "flat",
       .dimensions = {{.name = "ranks",
                       .size = ranks,
                       .link = {.alpha_seconds = alpha_seconds, .beta_seconds_per_byte = beta}}}});
}

std::shared_ptr<const Rounds> ring(int ranks) {
  return make_rounds(find_algorithm("ring"), Collective::all_gather, {.ranks = ranks});
}

void enter_all(Traffic& traffic, CollectiveId id, int members, double seconds) {
  for (int member = 0; member < members; ++member) traffic.enter(id, member, seconds);
}

std::map<CollectiveId, double> ends(Traffic& traffic) {
  std::map<CollectiveId, double> last;
  for (auto ended = traffic.advance(); !ended.empty(); ended = traffic.advance()) {
    for (const Completion& end : ended) {
      EXPECT_FALSE(last.count(end.collective)) << "ended after its last member";
      if (end.last) last[end.collective] = end.seconds;
    }
  }
  return last;
}

// Two ranks, 1 s a message, 10 bytes a second. One of 40 bytes (20 each way) from 0 s would end at 3 s;
// another of 40 from 1 s begins to flow at 2 s, when the first has 10 bytes left. They share until 4 s; the
// second has 10 left: 5 s.
TEST(Traffic, CollectivesAtOneTimeShareTheirLinks) {
  const Topology network = flat(2, 1, 0.1);
  Traffic traffic(network);
  const CollectiveId first = traffic.open(ring(2), 40);
  const CollectiveId second = traffic.open(ring(2), 40);
  enter_all(traffic, first, 2, 0);
  enter_all(traffic, second, 2, 1);
  const auto ended = ends(traffic);
  EXPECT_DOUBLE_EQ(ended.at(first), 4);
  EXPECT_DOUBLE_EQ(ended.at(second), 5);
}

TEST(Traffic, JobsOnOtherRanksDoNotMeet) {
  const Topology network = flat(8, 1, 0.1);
  Traffic traffic(network);
  const CollectiveId first = traffic.open(ring(4), 40, {0, 2, 4, 6});
  const CollectiveId second = traffic.open(ring(4), 80, {1, 3, 5, 7});
  enter_all(traffic, first, 4, 0);
  enter_all(traffic, second, 4, 0);
  const auto ended = ends(traffic);
  EXPECT_DOUBLE_EQ(ended.at(first), 3 * (1 + 1));
  EXPECT_DOUBLE_EQ(ended.at(second), 3 * (1 + 2));
}

// Two nodes of two ranks with one card each, 1 s a message and 10 bytes a second; a job on the first ranks of
// both, another on the second ones. 20 bytes each way take 1 + 2 s alone, and 1 + 4 s with the other job.
TEST(Traffic, JobsOnOtherRanksMeetInTheCardOfTheirNode) {
  const Topology network(
      {.name = "nodes",
       .dimensions = {
           {.name = "node", .size = 2, .link = {}},
           {.name = "card", .size = 2, .link = {.alpha_seconds = 1, .beta_seconds_per_byte = 0.1}}}});
  for (const bool alone : {true, false}) {
    Traffic traffic(network);
    const CollectiveId first = traffic.open(ring(2), 40, {0, 2});
    enter_all(traffic, first, 2, 0);
    if (!alone) enter_all(traffic, traffic.open(ring(2), 40, {1, 3}), 2, 0);
    EXPECT_DOUBLE_EQ(ends(traffic).at(first), alone ? 3 : 5);
  }
}

// Who drives a simulation does not know beforehand when a rank will come.
TEST(Traffic, GoesNoFurtherThanAskedAndTakesWhoComes) {
  const Topology network = flat(2, 1, 0.1);
  Traffic traffic(network);
  const CollectiveId id = traffic.open(ring(2), 40);
  traffic.enter(id, 0, 0);
  EXPECT_TRUE(traffic.advance(5).empty());
  EXPECT_EQ(traffic.now_seconds(), 5);
  EXPECT_FALSE(traffic.next_seconds());
  traffic.enter(id, 1, 5);
  EXPECT_EQ(traffic.next_seconds(), 5);
  EXPECT_TRUE(traffic.advance(7).empty());
  const std::span<const Completion> both = traffic.advance(100);
  ASSERT_EQ(both.size(), 2);
  EXPECT_EQ(both[0].seconds, 8);
  EXPECT_FALSE(both[0].last);
  EXPECT_TRUE(both[1].last);
  EXPECT_EQ(traffic.now_seconds(), 8);
  EXPECT_TRUE(traffic.advance(100).empty());
  EXPECT_EQ(traffic.now_seconds(), 100);
}

TEST(Traffic, IdsAreUsedAgain) {
  const Topology network = flat(2, 1, 0.1);
  Traffic traffic(network);
  const CollectiveId first = traffic.open(ring(2), 40);
  enter_all(traffic, first, 2, 0);
  ends(traffic);
  EXPECT_EQ(traffic.open(ring(2), 40), first);
  enter_all(traffic, first, 2, 10);
  EXPECT_EQ(ends(traffic).at(first), 13);
}

// Stopping on the way changes nothing, whatever meets.
TEST(Traffic, IsTheSameInAnySteps) {
  std::mt19937 random(11);
  const auto pick = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int trial = 0; trial < 40; ++trial) {
    const int ranks = pick(2, 9);
    Dimension nodes{
        .name = "nodes", .size = pick(1, 3), .link = {.alpha_seconds = 2, .beta_seconds_per_byte = 0.3}};
    nodes.oversubscription = pick(1, 3);
    const Topology network({.name = "random",
                            .dimensions = {{.name = "ranks",
                                            .size = ranks,
                                            .wiring = static_cast<Wiring>(pick(0, 2)),
                                            .link = {.alpha_seconds = 1, .beta_seconds_per_byte = 0.1}},
                                           nodes}});
    Traffic whole(network);
    Traffic stepped(network);
    for (int job = pick(1, 4); job > 0; --job) {
      const int members = network.ranks();
      const auto rounds = make_rounds(find_algorithm(pick(0, 1) == 0 ? "bruck" : "pairwise"),
                                      Collective::all_gather, {.ranks = members});
      const double bytes = pick(1, 500);
      const CollectiveId id = whole.open(rounds, bytes);
      ASSERT_EQ(stepped.open(rounds, bytes), id);
      for (int member = 0; member < members; ++member) {
        const double seconds = pick(0, 20);
        whole.enter(id, member, seconds);
        stepped.enter(id, member, seconds);
      }
    }
    const std::map<CollectiveId, double> expected = ends(whole);
    std::map<CollectiveId, double> found;
    for (double until = 0; found.size() < expected.size(); until += 0.37) {
      while (true) {
        const std::span<const Completion> ended = stepped.advance(until);
        if (ended.empty()) break;
        for (const Completion& end : ended) {
          EXPECT_LE(end.seconds, until * (1 + 1e-9));
          if (end.last) found[end.collective] = end.seconds;
        }
      }
      ASSERT_LT(until, 1e5);
    }
    for (const auto& [id, seconds] : expected) EXPECT_NEAR(found.at(id), seconds, 1e-9 * seconds);
    EXPECT_EQ(stepped.messages(), whole.messages());
  }
}

TEST(Traffic, RefusesWhatCannotBe) {
  const Topology network = flat(2, 1, 0.1);
  Traffic traffic(network);
  EXPECT_THROW(traffic.open(ring(2), -1), ConfigError);
  EXPECT_THROW(traffic.open(ring(3), 1), ConfigError);
  EXPECT_THROW(traffic.open(ring(2), 1, {0, 2}), ConfigError);
  EXPECT_THROW(traffic.enter(0, 0, 0), ScheduleError);
  const CollectiveId id = traffic.open(ring(2), 40);
  EXPECT_THROW(traffic.enter(id, 2, 0), ScheduleError);
  traffic.enter(id, 0, 1);
  EXPECT_THROW(traffic.enter(id, 0, 1), ScheduleError);
  traffic.advance(2);
  EXPECT_THROW(traffic.enter(id, 1, 1), ScheduleError);
  EXPECT_THROW(traffic.advance(1), ScheduleError);
}

}  // namespace
}  // namespace dear::fabric::traffic_test
