#include "dear/tools/cases/kfac_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"

namespace dear::cases::kfac_plan_test {
namespace {

using ::testing::HasSubstr;

std::vector<Scenario> resnet50(const std::string& cluster, int ranks) {
  return scenarios({.models = {"resnet50"}, .clusters = {cluster}, .ranks = {ranks}, .model = {.batch = 32}});
}

TEST(KfacPlan, ComparesEveryWayAndSaysWhy) {
  const std::vector<Scenario> all = resnet50("10gbe", 16);
  const KfacAnswer answer = plan_kfac(all[0], {});
  // Three that travel in bulk, three fusions, and three to the owner.
  EXPECT_EQ(answer.rows.size(), 9U);
  for (std::size_t i = 1; i < answer.rows.size(); ++i)
    EXPECT_LE(answer.rows[i - 1].one.prediction.iteration_seconds,
              answer.rows[i].one.prediction.iteration_seconds);
  for (const KfacAnswer::Row& row : answer.rows) EXPECT_THAT(row.why, HasSubstr("for "));
  ASSERT_EQ(answer.seldom.size(), 2U);
  EXPECT_LT(answer.seldom[1].prediction.iteration_seconds, answer.seldom[0].prediction.iteration_seconds);
  EXPECT_LT(answer.sgd_seconds, answer.seldom[1].prediction.iteration_seconds);
  ASSERT_EQ(answer.verdict.size(), 4U);
  EXPECT_THAT(answer.verdict[0], HasSubstr(answer.rows[0].one.strategy.name));
  EXPECT_THAT(answer.verdict[2], HasSubstr("to invert"));
  EXPECT_THAT(answer.verdict[3], HasSubstr("SGD"));
  EXPECT_THAT(answer.verdict[3], HasSubstr("once in 10 iterations"));
  const nlohmann::json list = nlohmann::json::parse(to_json({answer}));
  EXPECT_EQ(list[0]["rows"].size(), 9U);
  EXPECT_EQ(list[0]["rows"][0]["factor_fusion"], answer.rows[0].fusion);
}

TEST(KfacPlan, OneRankHasNothingToSend) {
  const std::vector<Scenario> all = resnet50("10gbe", 1);
  const KfacAnswer answer = plan_kfac(all[0], {.strategies = {methods::kfac::find_strategy("spd-kfac")}});
  EXPECT_THAT(answer.verdict[1], HasSubstr("nothing travels"));
  EXPECT_EQ(answer.rows.size(), 1U);
  EXPECT_EQ(answer.rows[0].one.inverses_sent(), 0U);
}

TEST(KfacPlan, CountsOneGroupAndSaysThatNothingIsHidden) {
  const std::vector<Scenario> all = resnet50("10gbe", 16);
  const KfacAnswer answer = plan_kfac(all[0], {.strategies = {methods::kfac::find_strategy("d-kfac")}});
  EXPECT_THAT(answer.verdict[1], HasSubstr("in 1 group,"));
  EXPECT_THAT(answer.verdict[1], HasSubstr("none lies"));
}

}  // namespace
}  // namespace dear::cases::kfac_plan_test
