#include "dear/systems/train_command/interleaving.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::train_command::train_turns_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::size_t> order_of(const std::vector<Turn>& turns, std::size_t round) {
  std::vector<std::size_t> order;
  for (const Turn& turn : turns) {
    if (turn.round == round) order.push_back(turn.policy);
  }
  return order;
}

TEST(Interleaving, ThreePoliciesOfThirtySteps) {
  EXPECT_THAT(take_turns(3, 30), ElementsAre(Turn{0, 0, {0, 10}, {10, 10}}, Turn{1, 0, {0, 10}, {10, 10}},
                                             Turn{2, 0, {0, 10}, {10, 10}}, Turn{2, 1, {10, 20}, {12, 20}},
                                             Turn{1, 1, {10, 20}, {12, 20}}, Turn{0, 1, {10, 20}, {12, 20}},
                                             Turn{1, 2, {20, 30}, {22, 30}}, Turn{2, 2, {20, 30}, {22, 30}},
                                             Turn{0, 2, {20, 30}, {22, 30}}));
}

TEST(Interleaving, ThreePoliciesHaveEveryOrderInSixRounds) {
  const std::vector<Turn> turns = take_turns(3, 60);
  std::set<std::vector<std::size_t>> orders;
  for (std::size_t round = 0; round < 6; ++round) orders.insert(order_of(turns, round));
  EXPECT_EQ(orders.size(), 6U);
}

TEST(Interleaving, EachPolicyStandsAsOftenInEachPlace) {
  for (std::size_t policies = 1; policies <= 7; ++policies) {
    std::map<std::pair<std::size_t, std::size_t>, int> often;  // by policy and place
    const std::vector<Turn> turns = take_turns(policies, static_cast<std::int64_t>(20 * policies));
    for (std::size_t i = 0; i < turns.size(); ++i) ++often[{turns[i].policy, i % policies}];
    EXPECT_EQ(often.size(), policies * policies);
    for (const auto& [where, count] : often) EXPECT_EQ(count, 2) << where.first << " " << where.second;
  }
}

TEST(Interleaving, EachPolicyTakesAllOfItsStepsInOrderAndEveryRoundHasEachOnce) {
  for (const std::size_t policies : {1, 2, 3, 5}) {
    for (std::int64_t steps = 1; steps <= 240; ++steps) {
      const std::vector<Turn> turns = take_turns(policies, steps);
      std::vector<std::int64_t> done(policies, 0);
      for (const Turn& turn : turns) {
        ASSERT_EQ(turn.steps.begin, std::exchange(done[turn.policy], turn.steps.end));
        ASSERT_LT(turn.steps.begin, turn.steps.end);
        ASSERT_LT(turn.steps.end - turn.steps.begin, 20);
        ASSERT_LE(turn.steps.begin, turn.counted.begin);
        ASSERT_EQ(turn.counted.end, turn.steps.end);
      }
      EXPECT_THAT(done, ::testing::Each(steps));
      for (std::size_t round = 0; round <= turns.back().round; ++round) {
        const std::vector<std::size_t> order = order_of(turns, round);
        EXPECT_EQ(std::set(order.begin(), order.end()).size(), policies);
        EXPECT_EQ(order.size(), policies);
      }
    }
  }
}

TEST(Interleaving, TurnsOfAPolicyDifferByAStepAtMost) {
  for (std::int64_t steps = 10; steps <= 240; ++steps) {
    std::int64_t least = steps, most = 0;
    for (const Turn& turn : take_turns(1, steps)) {
      least = std::min(least, turn.steps.end - turn.steps.begin);
      most = std::max(most, turn.steps.end - turn.steps.begin);
    }
    EXPECT_LE(most - least, 1) << steps;
    EXPECT_GE(least, 10) << steps;
  }
}

TEST(Interleaving, TheFirstRoundAndTheFirstStepsAfterASwitchDoNotCount) {
  EXPECT_THAT(counted_steps(take_turns(3, 30), 1), ElementsAre(Range{12, 20}, Range{22, 30}));
}

TEST(Interleaving, AnOnlyRoundCountsFromItsThirdStepOrTheLastThereIs) {
  EXPECT_THAT(counted_steps(take_turns(2, 19), 0), ElementsAre(Range{2, 19}));
  EXPECT_THAT(counted_steps(take_turns(2, 3), 1), ElementsAre(Range{2, 3}));
  EXPECT_THAT(counted_steps(take_turns(2, 2), 1), ElementsAre(Range{1, 2}));
  EXPECT_THAT(counted_steps(take_turns(2, 1), 1), ElementsAre(Range{0, 1}));
}

TEST(Interleaving, APolicyThatIsNotThereHasNoSteps) {
  EXPECT_THAT(counted_steps(take_turns(2, 30), 2), IsEmpty());
}

}  // namespace
}  // namespace dear::train_command::train_turns_test
