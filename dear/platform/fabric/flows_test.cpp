#include "dear/platform/fabric/flows.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include <gmock/gmock.h>

#include "dear/base/vocabulary/error.h"

namespace dear::fabric::flows_test {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;
using Links = std::vector<LinkId>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<FlowId> advance_to_next(Flows& flows) {
  const std::span<const FlowId> ended = flows.advance(flows.next_seconds().value());
  return {ended.begin(), ended.end()};
}

TEST(Flows, OneAloneHasTheSlowestOfItsLinks) {
  Flows flows({10, 4, 8});
  const FlowId flow = flows.start(Links{0, 1, 2}, 20);
  EXPECT_EQ(flows.rate(flow), 4);
  EXPECT_EQ(flows.next_seconds(), 5);
  EXPECT_THAT(advance_to_next(flows), ElementsAre(flow));
  EXPECT_EQ(flows.now_seconds(), 5);
  EXPECT_FALSE(flows.next_seconds());
}

// 10 bytes a second; 20 and 60 bytes. Each has 5 until 4 s; then the second, with 40 left, has all: 8 s.
TEST(Flows, WhoIsLeftSpeedsUp) {
  Flows flows({10});
  const FlowId shorter = flows.start(Links{0}, 20);
  const FlowId longer = flows.start(Links{0}, 60);
  EXPECT_EQ(flows.rate(shorter), 5);
  EXPECT_THAT(advance_to_next(flows), ElementsAre(shorter));
  EXPECT_EQ(flows.now_seconds(), 4);
  EXPECT_EQ(flows.rate(longer), 10);
  EXPECT_THAT(advance_to_next(flows), ElementsAre(longer));
  EXPECT_EQ(flows.now_seconds(), 8);
}

// One on both links, one on each: the narrow link gives 5 to each of its two, the wide one the rest, 15.
TEST(Flows, AreMaxMinFair) {
  Flows flows({10, 20});
  const FlowId both = flows.start(Links{0, 1}, 100);
  const FlowId narrow = flows.start(Links{0}, 100);
  const FlowId wide = flows.start(Links{1}, 100);
  EXPECT_EQ(flows.rate(both), 5);
  EXPECT_EQ(flows.rate(narrow), 5);
  EXPECT_EQ(flows.rate(wide), 15);
}

// 10 bytes a second; 30 bytes at 0 s, 30 more at 2 s: the first has 10 left and takes until 4 s, the second
// has 20 left then and takes until 6 s.
TEST(Flows, WhoComesLaterSlowsOthersDown) {
  Flows flows({10});
  const FlowId first = flows.start(Links{0}, 30);
  EXPECT_TRUE(flows.advance(2).empty());
  const FlowId second = flows.start(Links{0}, 30);
  EXPECT_EQ(flows.rate(first), 5);
  EXPECT_THAT(advance_to_next(flows), ElementsAre(first));
  EXPECT_EQ(flows.now_seconds(), 4);
  EXPECT_THAT(advance_to_next(flows), ElementsAre(second));
  EXPECT_EQ(flows.now_seconds(), 6);
}

TEST(Flows, WhatEndsAtOneInstantEndsTogether) {
  Flows flows({3, 7});
  const FlowId a = flows.start(Links{0}, 0.1 * 3);
  const FlowId b = flows.start(Links{1}, 0.1 * 7);
  EXPECT_THAT(advance_to_next(flows), UnorderedElementsAre(a, b));
}

TEST(Flows, NothingToCarryAndNothingInTheWayTakeNoTime) {
  Flows flows({3, kInfinity});
  const FlowId empty = flows.start(Links{0}, 0);
  const FlowId unhindered = flows.start(Links{1}, 1e9);
  const FlowId nowhere = flows.start(Links{}, 1e9);
  EXPECT_EQ(flows.next_seconds(), 0);
  EXPECT_THAT(advance_to_next(flows), UnorderedElementsAre(empty, unhindered, nowhere));
}

// Links 0 and 1 know nothing of each other.
TEST(Flows, OnlyThoseThatShareGetNewRates) {
  Flows flows({10, 10});
  for (int i = 0; i < 5; ++i) flows.start(Links{0}, 100);
  EXPECT_EQ(flows.next_seconds(), 50);
  const std::uint64_t before = flows.rates_computed();
  flows.start(Links{1}, 1);
  EXPECT_EQ(flows.next_seconds(), 0.1);
  EXPECT_EQ(flows.rates_computed() - before, 1);
}

TEST(Flows, RefuseWhatCannotBe) {
  EXPECT_THROW(Flows({0}), ConfigError);
  Flows flows({10});
  flows.start(Links{0}, 10);
  EXPECT_THROW(flows.advance(1.5), ScheduleError);
  flows.advance(0.5);
  EXPECT_THROW(flows.advance(0.25), ScheduleError);
}

// Flows that come and go on random links, beside the plain way to do it: all rates anew at every change.
struct Plain {
  struct Flow {
    Links links;
    double bytes = 0;
    double left = 0;
    double rate = 0;
  };
  std::vector<double> capacities;
  std::map<FlowId, Flow> flows{};

  void share_out() {
    std::vector<double> left = capacities;
    std::map<FlowId, Flow*> open;
    for (auto& [id, flow] : flows) open[id] = &flow;
    while (!open.empty()) {
      double least = kInfinity;
      LinkId narrowest = 0;
      for (LinkId link = 0; link < left.size(); ++link) {
        const auto users =
            std::count_if(open.begin(), open.end(), [&](auto& entry) { return uses(*entry.second, link); });
        if (users > 0 && left[link] / static_cast<double>(users) < least) {
          least = left[link] / static_cast<double>(users);
          narrowest = link;
        }
      }
      for (auto entry = open.begin(); entry != open.end();) {
        if (!uses(*entry->second, narrowest)) {
          ++entry;
          continue;
        }
        entry->second->rate = least;
        for (const LinkId link : entry->second->links) left[link] -= least;
        entry = open.erase(entry);
      }
    }
  }
  void flow_for(double seconds) {
    for (auto& [id, flow] : flows) flow.left -= flow.rate * seconds;
  }
  static bool uses(const Flow& flow, LinkId link) {
    return std::count(flow.links.begin(), flow.links.end(), link) > 0;
  }
};

void expect_max_min_fair(Flows& flows, const Plain& plain) {
  std::vector<double> used(plain.capacities.size());
  std::vector<double> fastest(plain.capacities.size());
  for (const auto& [id, flow] : plain.flows) {
    for (const LinkId link : flow.links) {
      used[link] += flows.rate(id);
      fastest[link] = std::max(fastest[link], flows.rate(id));
    }
  }
  for (LinkId link = 0; link < used.size(); ++link)
    EXPECT_LE(used[link], plain.capacities[link] * (1 + 1e-9));
  for (const auto& [id, flow] : plain.flows) {
    const double rate = flows.rate(id);
    EXPECT_TRUE(std::any_of(flow.links.begin(), flow.links.end(),
                            [&](LinkId link) {
                              return used[link] >= plain.capacities[link] * (1 - 1e-9) &&
                                     rate >= fastest[link] * (1 - 1e-9);
                            }))
        << "flow " << id << " could be faster";
  }
}

TEST(Flows, AreFairAndAsInAPlainSolutionOnRandomNetworks) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    Plain plain{.capacities = std::vector<double>(static_cast<std::size_t>(pick(1, 30)))};
    for (double& capacity : plain.capacities) capacity = pick(1, 20);
    Flows flows(plain.capacities);
    double carried = 0;
    double asked = 0;
    for (int starts = 40; starts > 0 || !plain.flows.empty();) {
      for (int burst = std::min(starts, pick(0, 6)); burst > 0; --burst, --starts) {
        std::vector<LinkId> links(plain.capacities.size());
        for (LinkId i = 0; i < links.size(); ++i) links[i] = i;
        std::shuffle(links.begin(), links.end(), random);
        links.resize(std::min(links.size(), static_cast<std::size_t>(pick(1, 4))));
        const double bytes = pick(1, 100);
        asked += bytes;
        plain.flows[flows.start(links, bytes)] = {.links = links, .bytes = bytes, .left = bytes};
      }
      plain.share_out();
      expect_max_min_fair(flows, plain);
      for (const auto& [id, flow] : plain.flows) ASSERT_NEAR(flows.rate(id), flow.rate, 1e-9 * flow.rate);
      const std::optional<double> next = flows.next_seconds();
      if (!next) continue;
      const double now = flows.now_seconds();
      const double then = pick(0, 2) == 0 ? (now + *next) / 2 : *next;
      const std::span<const FlowId> ended = flows.advance(then);
      plain.flow_for(then - now);
      for (const FlowId id : ended) {
        ASSERT_NEAR(plain.flows.at(id).left, 0, 1e-6);
        carried += plain.flows.at(id).bytes;
        plain.flows.erase(id);
      }
      for (const auto& [id, flow] : plain.flows) ASSERT_GT(flow.left, 1e-9) << "should have ended";
    }
    EXPECT_EQ(carried, asked);
  }
}

}  // namespace
}  // namespace dear::fabric::flows_test
