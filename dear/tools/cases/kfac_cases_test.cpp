#include "dear/tools/cases/kfac_cases.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/tools/cases/cases.h"

namespace dear::cases::kfac_cases_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<Scenario> resnet50(const std::string& cluster, int ranks) {
  return scenarios({.models = {"resnet50"}, .clusters = {cluster}, .ranks = {ranks}, .model = {.batch = 32}});
}

TEST(KfacCases, EveryStrategyIsSimulatedOnTheCluster) {
  const std::vector<Scenario> all = resnet50("10gbe", 8);
  const KfacOptions options = find_options(
      KfacNames{.policies = {"d-kfac", "mpd-kfac", "mpd-kfac-owner", "spd-kfac", "spd-kfac-owner"}});
  const std::vector<KfacCase> cases = simulate(all, options);
  ASSERT_EQ(cases.size(), 5U);
  for (const KfacCase& one : cases) {
    SCOPED_TRACE(one.strategy.name);
    EXPECT_EQ(one.on.costs.ranks, 8);
    EXPECT_NEAR(one.prediction.parts.total(), one.prediction.iteration_seconds, 1e-9);
    EXPECT_GT(one.prediction.parts.factors, 0);
  }
  EXPECT_EQ(cases[0].inverses_sent(), 0U);
  EXPECT_EQ(cases[1].inverses_sent(), 108U);
  EXPECT_LT(cases[3].prediction.iteration_seconds, cases[0].prediction.iteration_seconds);
  const nlohmann::json rows = nlohmann::json::parse(to_json(cases));
  EXPECT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[3]["policy"], "spd-kfac");
  EXPECT_THAT(plot(cases, "K-FAC"), HasSubstr("mpd-kfac-owner"));
}

TEST(KfacCases, OneRankSendsNothing) {
  const std::vector<Scenario> all = resnet50("10gbe", 1);
  const KfacCase one = simulate(all, find_options(KfacNames{.policies = {"mpd-kfac"}})).front();
  EXPECT_EQ(one.inverses_sent(), 0U);
  EXPECT_EQ(one.prediction.parts.factors_sent, 0);
  EXPECT_EQ(one.prediction.parts.gradients, 0);
}

TEST(KfacCases, TracesShowFactorsAndInversesByLayer) {
  const std::vector<Scenario> all = resnet50("10gbe", 4);
  const KfacNames names{.policies = {"spd-kfac"}, .inverse_placement = "balanced"};
  const Trace trace = trace_of(simulate(all, find_options(names)).front());
  const auto has = [&](const std::string& begin, Activity activity) {
    return std::any_of(trace.spans.begin(), trace.spans.end(), [&](const Span& span) {
      return span.name.starts_with(begin) && span.activity == activity;
    });
  };
  EXPECT_TRUE(has("factor A of conv1", Activity::other));
  EXPECT_TRUE(has("factor G of fc", Activity::other));
  EXPECT_TRUE(has("inverse of ", Activity::other));
  EXPECT_TRUE(has("all-reduce factors, from A of conv1", Activity::communication));
  EXPECT_TRUE(has("broadcast of the inverse of ", Activity::communication));
  EXPECT_TRUE(has("precondition fc", Activity::update));
}

TEST(KfacCases, OptionsOverrideAStrategy) {
  const KfacOptions options = find_options(KfacNames{.policies = {"spd-kfac"},
                                                     .factor_fusion = "exact",
                                                     .inverse_placement = "local",
                                                     .intervals = {.factors = 2, .inverses = 10}});
  EXPECT_EQ(options.strategies[0].fusion, methods::kfac::FusionRule::exact);
  EXPECT_EQ(options.strategies[0].placement, methods::kfac::PlacementRule::all_local);
  EXPECT_THROW(find_options(KfacNames{.policies = {"spd-kfac"}, .factor_fusion = "best"}), ConfigError);
  EXPECT_THROW(find_options(KfacNames{.policies = {"spd-kfac"}, .intervals = {.factors = 3, .inverses = 4}}),
               ConfigError);
  EXPECT_THROW(find_options(KfacNames{.policies = {"kfac"}}), ConfigError);
  EXPECT_TRUE(is_kfac("spd-kfac"));
  EXPECT_FALSE(is_kfac("dear"));
}

TEST(KfacCases, RefusesWorkloadsWhoseShapesNobodyKnows) {
  std::vector<Scenario> all = resnet50("10gbe", 4);
  all[0].model.reset();
  EXPECT_THAT([&] { simulate(all, find_options(KfacNames{.policies = {"spd-kfac"}})); },
              ThrowsMessage<ConfigError>(HasSubstr("shapes")));
  all = resnet50("10gbe", 4);
  all[0].cluster.stragglers.push_back({});
  EXPECT_THAT([&] { simulate(all, find_options(KfacNames{.policies = {"spd-kfac"}})); },
              ThrowsMessage<ConfigError>(HasSubstr("stragglers")));
}

TEST(KfacCases, LargeLayersKeepTheirPlainGradient) {
  const std::vector<Scenario> all =
      scenarios({.models = {"vgg16"}, .clusters = {"10gbe"}, .ranks = {4}, .model = {.batch = 8}});
  const KfacCase one = simulate(all, find_options(KfacNames{.policies = {"spd-kfac"}})).front();
  EXPECT_THAT(one.on.left_out, ::testing::ElementsAre("classifier.0"));
  EXPECT_THAT(describe_left_out(one.on), HasSubstr("classifier.0 keeps its"));
  KfacJob many = one.on;
  many.left_out = {"a", "b", "c", "d"};
  EXPECT_THAT(describe_left_out(many), HasSubstr("4 layers (a, b, c, ...) keep their"));
  many.left_out.clear();
  EXPECT_EQ(describe_left_out(many), "");
  EXPECT_EQ(trace_of(one).title, "dear simulate, policy spd-kfac, 4 ranks");
}

TEST(KfacCases, NamesOfKfacAreNotOfPlainGradients) {
  EXPECT_THAT([] { plain_policy("mpd-kfac"); },
              ThrowsMessage<ConfigError>(HasSubstr("plan --optimizer kfac")));
  EXPECT_THAT([] { plain_policy("spdkfac"); }, ThrowsMessage<ConfigError>(HasSubstr("spd-kfac")));
  EXPECT_EQ(plain_policy("dear"), "dear");
  EXPECT_THAT([] { find_options(CaseNames{.policies = {"spd-kfac"}}, {}); },
              ::testing::Throws<ConfigError>());
}

}  // namespace
}  // namespace dear::cases::kfac_cases_test
