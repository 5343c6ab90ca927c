#include "dear/tools/cases/mixture_plan.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace dear::cases::mixture_plan_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<MixtureScenario> scenarios_on(const std::string& cluster, int ranks, std::int64_t batch = 16) {
  return mixture_scenarios({.models = {"gpt2-s-moe"},
                            .clusters = {cluster},
                            .ranks = {ranks},
                            .model = {.device = "v100", .batch = batch}},
                           {});
}

// The part of an iteration that waits for all-to-alls where every link carries so many times as much.
double exposed_part(const MixtureScenario& scenario, const char* overlap, double bandwidth) {
  Cluster cluster = scenario.cluster;
  for (Dimension& dimension : cluster.dimensions) dimension.link.beta_seconds_per_byte /= bandwidth;
  const methods::moe::MixtureJob job =
      methods::moe::make_job(scenario.model, *scenario.device, cluster, scenario.options);
  const methods::moe::Times times =
      run(job.graph, methods::moe::find_passes(overlap), job.part_seconds, {.iterations = 4}).times;
  return times.exposed_all_to_all_seconds / times.iteration_seconds;
}

TEST(MixturePlan, SaysWhereStartUpAloneExposesThem) {
  const std::vector<MixtureScenario> all = scenarios_on("bandwidth=100gbit,latency=1ms", 8, 4);
  const MixtureAnswer answer = plan_mixture(all[0]);
  for (const MixtureAnswer::Row& row : answer.rows) {
    EXPECT_TRUE(std::isinf(row.free.factor));
    EXPECT_GT(row.free.exposed_at_best, kFreePart);
    EXPECT_NEAR(exposed_part(all[0], std::string(row.one.overlap->name).c_str(), 1e9),
                row.free.exposed_at_best, 1e-3);
  }
  ASSERT_EQ(answer.verdict.size(), 4U);
  EXPECT_THAT(answer.verdict[3], HasSubstr("with lancet at no bandwidth (start-up of messages alone"));
  const nlohmann::json rows = nlohmann::json::parse(to_json({answer}))[0]["rows"];
  EXPECT_TRUE(rows[0]["free_from_bits_per_second"].is_null());
  EXPECT_GT(rows[0]["exposed_at_any_bandwidth"], kFreePart);
}

TEST(MixturePlan, ComparesEveryWay) {
  const std::vector<MixtureScenario> all = scenarios_on("p3dn-64", 16);
  std::vector<std::string> next;
  const MixtureAnswer answer =
      plan_mixture(all[0], [&](std::size_t done, std::size_t count, std::string_view what) {
        EXPECT_EQ(done, next.size());
        EXPECT_EQ(count, 5U);
        next.emplace_back(what);
      });
  EXPECT_THAT(next, ElementsAre("unoptimised", "experts", "dw", "partition", "lancet"));
  ASSERT_EQ(answer.rows.size(), 5U);
  double without = 0;
  for (const MixtureAnswer::Row& row : answer.rows)
    if (row.one.overlap->name == "unoptimised") without = row.one.seconds();
  for (std::size_t i = 0; i < 5; ++i) {
    const MixtureAnswer::Row& row = answer.rows[i];
    EXPECT_LE(answer.rows[i == 0 ? 0 : i - 1].one.seconds(), row.one.seconds());
    EXPECT_DOUBLE_EQ(row.saved_seconds, without - row.one.seconds());
    EXPECT_EQ(row.trains(), i >= 1 && row.one.overlap->name != "partition");
  }
  ASSERT_EQ(answer.rows[0].one.overlap->name, "lancet");
  // Just enough bandwidth, just too little, and as much as there could be.
  const FreeFrom free = answer.rows[0].free;
  EXPECT_GT(free.factor, 1);
  EXPECT_LT(free.factor, 100);
  EXPECT_LE(exposed_part(all[0], "lancet", free.factor), kFreePart);
  EXPECT_GT(exposed_part(all[0], "lancet", free.factor / 1.01), kFreePart);
  EXPECT_NEAR(exposed_part(all[0], "lancet", 1e6), free.exposed_at_best, 1e-12);
  ASSERT_EQ(answer.verdict.size(), 4U);
  EXPECT_THAT(answer.verdict[0], AllOf(HasSubstr("The fastest is lancet"), HasSubstr("what dear.MoE does")));
  EXPECT_THAT(answer.verdict[1], HasSubstr("under weight gradients alone (dw) save"));
  EXPECT_THAT(answer.verdict[2], HasSubstr("lancet cuts the forward: "));
  EXPECT_THAT(answer.verdict[3], HasSubstr("; the outermost links have 100 Gb/s"));
  const nlohmann::json one = nlohmann::json::parse(to_json({answer}))[0];
  EXPECT_EQ(one["rows"].size(), 5U);
  EXPECT_DOUBLE_EQ(one["bits_per_second"], 100e9);
  EXPECT_DOUBLE_EQ(one["rows"][0]["free_from_bits_per_second"], answer.rows[0].free.factor * 100e9);
  EXPECT_EQ(one["rows"][0]["ranges"].size(), answer.rows[0].one.passed.ranges.size());
  EXPECT_THAT(plot({answer}), HasSubstr("gpt2-s-moe on p3dn-64, 16 ranks"));
}

TEST(MixturePlan, OneRankHasNothingToOverlap) {
  const std::vector<MixtureScenario> all = scenarios_on("10gbe", 1);
  const MixtureAnswer answer = plan_mixture(all[0]);
  EXPECT_THAT(answer.verdict, ElementsAre(HasSubstr("no token travels")));
  for (const MixtureAnswer::Row& row : answer.rows) EXPECT_EQ(row.free.factor, 0);
  EXPECT_EQ(answer.rows[0].one.overlap->name, "unoptimised");  // the simplest of equals
}

// Where dense gradients take nearly all of an iteration.
TEST(MixturePlan, SaysThatNoWayHelps) {
  const std::vector<MixtureScenario> all = scenarios_on("1gbit", 4, 1);
  EXPECT_THAT(plan_mixture(all[0]).verdict[0], HasSubstr("No way to overlap saves more than 0.5 %"));
}

}  // namespace
}  // namespace dear::cases::mixture_plan_test
