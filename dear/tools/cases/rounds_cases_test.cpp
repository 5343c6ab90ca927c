#include "dear/tools/cases/rounds_cases.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/tools/cases/planned.h"
#include "dear/tools/cases/testing/two_scenarios.h"

namespace dear::cases::rounds_cases_test {
namespace {

using cases::testing::serial_and_wfbp;
using cases::testing::two_scenarios;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Steps take 6 s, an average 4 s, and wfbp 8 s; on the second cluster nothing takes time to travel.
TEST(RoundsCases, StandBesideTheFastestPolicyOfEachScenario) {
  const std::vector<Scenario> scenarios = two_scenarios();
  const std::vector<Case> cases = simulate(scenarios, serial_and_wfbp());
  const std::vector<RoundsCase> rounds = rounds_beside(cases, {1, 4});
  ASSERT_EQ(rounds.size(), 4U);
  EXPECT_EQ(rounds[0].beside->policy->name, "wfbp");
  EXPECT_DOUBLE_EQ(rounds[0].waits.seconds, 10);
  EXPECT_DOUBLE_EQ(rounds[0].overlaps.seconds, 6);
  EXPECT_DOUBLE_EQ(rounds[1].waits.seconds, 7);
  EXPECT_DOUBLE_EQ(rounds[1].waits.exposed_seconds, 1);
  EXPECT_DOUBLE_EQ(rounds[1].speed_up(rounds[1].waits), 8.0 / 7);
  EXPECT_EQ(rounds[2].beside->scenario, &scenarios[1]);
  EXPECT_DOUBLE_EQ(rounds[3].waits.seconds, 6);
  EXPECT_TRUE(rounds_beside(cases, {}).empty());
  EXPECT_THROW(rounds_beside(cases, {0}), ConfigError);
}

TEST(RoundsCases, SayWhenRoundsPay) {
  const std::vector<Scenario> scenarios = two_scenarios();
  const std::vector<Case> cases = simulate(scenarios, serial_and_wfbp());
  // 4 s / 2 s; 4 s / (6 s / 0.95 - 6 s) = 12.7.
  EXPECT_THAT(
      when_rounds_pay(rounds_beside(cases, {1, 4})),
      ElementsAre("two on pair: rounds are as fast as wfbp from 2 steps a round on, and ranks compute for "
                  "95 % of the time from 13 steps a round on; where steps go on meanwhile, with any number "
                  "of steps a round.",
                  HasSubstr("two on free: rounds gain at most 0 %")));
}

// Steps take 6 s, an average of 16 bytes takes 40 s on a link of 2.5 s a byte.
TEST(RoundsCases, APlanTellsOfThemWhereRanksWaitForMostOfTheTime) {
  std::vector<Scenario> scenarios = two_scenarios();
  scenarios[0].cluster = flat_cluster({.name = "slow", .link = {.beta_seconds_per_byte = 2.5}}, 2);
  const PlannedScenario slow = plan(scenarios[0], find_options({.policies = {"wfbp"}, .algorithm = "ring"}));
  ASSERT_TRUE(slow.rounds);
  EXPECT_EQ(slow.rounds->policy, "wfbp");
  EXPECT_DOUBLE_EQ(slow.rounds->job.step_seconds, 6);
  EXPECT_EQ(slow.rounds->hidden_from, 7) << "40 s / 6 s";
  ASSERT_EQ(slow.rounds->rows.size(), 4U);
  EXPECT_DOUBLE_EQ(slow.rounds->rows[1].waits.seconds, 6 + 40.0 / 16);
  EXPECT_DOUBLE_EQ(slow.rounds->rows[1].overlaps.seconds, 6);
  EXPECT_DOUBLE_EQ(slow.rounds->rows[1].waits.sent_bytes, 1);
  EXPECT_THAT(slow.rounds->sentence, HasSubstr("hidden from 7 steps a round on"));
  const auto json = nlohmann::json::parse(to_json({slow}));
  EXPECT_EQ(json[0]["rounds"]["hidden_from_steps"], 7);
  EXPECT_EQ(json[0]["rounds"]["rows"][1]["iteration_seconds"], 8.5);

  const PlannedScenario fast = plan(scenarios[1], find_options({.policies = {"wfbp"}}));
  EXPECT_FALSE(fast.rounds);
  EXPECT_THAT(to_json({fast}), ::testing::Not(HasSubstr("\"rounds\"")));
}

TEST(RoundsCases, AreWrittenBehindTheOthers) {
  const std::vector<Scenario> scenarios = two_scenarios();
  const std::vector<Case> cases = simulate(scenarios, serial_and_wfbp());
  const auto list = nlohmann::json::parse(to_json(cases, rounds_beside(cases, {4})));
  ASSERT_EQ(list.size(), 4U + 2 * 2U);
  EXPECT_EQ(list[3]["policy"], "wfbp");
  EXPECT_EQ(list[4]["policy"], "rounds");
  EXPECT_EQ(list[4]["averaging"], "waits");
  EXPECT_EQ(list[4]["iteration_seconds"], 7.0);
  EXPECT_EQ(list[4]["sent_bytes"], 4.0) << "16 bytes, of which each of two ranks sends as many, in 4 steps";
  EXPECT_EQ(list[5]["averaging"], "overlaps");
  EXPECT_EQ(nlohmann::json::parse(to_json(cases, {})), nlohmann::json::parse(to_json(cases)));
}

}  // namespace
}  // namespace dear::cases::rounds_cases_test
