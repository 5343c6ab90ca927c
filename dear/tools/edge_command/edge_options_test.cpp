#include "dear/tools/edge_command/edge_options.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/tools/edge_command/edge_report.h"
#include "dear/tools/edge_command/plan_report.h"

namespace dear::edge_command::edge_options_test {
namespace {

using ::testing::HasSubstr;

template <typename Act>
void refused(const Act& act, const std::string& says) {
  try {
    act();
    ADD_FAILURE() << "not refused: " << says;
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(says));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(EdgeOptions, ReadUnits) {
  EXPECT_EQ(parse_hertz("10MHz"), 1e7);
  EXPECT_EQ(parse_hertz("2.5 GHz"), 2.5e9);
  EXPECT_NEAR(parse_watts("20dBm"), 0.1, 1e-15);
  EXPECT_NEAR(parse_watts("-174dBm"), 3.98e-21, 1e-23);
  EXPECT_EQ(parse_watts("0.2W"), 0.2);
  for (const char* text : {"", "10", "MHz", "0Hz", "-1Hz", "nanHz", "10mhz", "10MHz "})
    refused([&] { parse_hertz(text); }, "a frequency above 0");
  for (const char* text : {"", "10", "0W", "-1W", "infW", "4000dBm"})
    refused([&] { parse_watts(text); }, "a power");
}

TEST(EdgeOptions, MakeARunForEachSchedulerAndAggregator) {
  const RunSettings settings =
      check(RunOptions{.schedulers = {"random", "bn2"}, .aggregators = {"mean", "qsgd", "gossip"}});
  ASSERT_EQ(settings.runs.size(), 5U);
  EXPECT_EQ(settings.runs[3].scheduler, "bn2");
  EXPECT_EQ(settings.runs[3].aggregator, "qsgd");
  EXPECT_EQ(settings.runs[4].aggregator, "gossip");
  EXPECT_THAT(settings.described, HasSubstr("logistic regression of 10 classes, 210 parameters"));
}

TEST(EdgeOptions, ThatCannotBeAreRefusedInOneSentence) {
  struct Refusal {
    RunOptions options;
    std::string says;
  };
  for (const Refusal& one : std::vector<Refusal>{
           {{.schedulers = {"randm"}}, "--scheduler: there is no scheduler 'randm', did you mean random"},
           {{.aggregators = {"means"}}, "--aggregator: there is no aggregator 'means', did you mean mean"},
           {{.schedulers = {"random"}, .aggregators = {"gossip"}}, "every device takes part"},
           {{.schedulers = {"greedy"}}, "fills a budget"},
           {{.model = "resnet"}, "--model: there is no model 'resnet'"},
           {{.split = "iit"}, "--split"},
           {{.allocator = "x"}, "--allocator"},
           {{.graph = "x"}, "--graph"},
           {{.cell = {.bandwidth = "10"}}, "--bandwidth: '10'"},
           {{.cell = {.nearest_m = -1}}, "nearest distance"},
           {{.devices = 0}, "--devices"},
           {{.devices = 10'000, .samples = 1'000'000}, "--samples: 10000 devices"},
           {{.cohort = 21}, "--cohort"},
           {{.cohort = 0}, "--cohort"},
           {{.rounds = 0}, "--rounds"},
           {{.levels = 0}, "--levels"},
           {{.aggregators = {"top-k"}, .ratio = 0}, "a ratio of 0"},
           {{.aggregators = {"over-the-air"}, .threshold = 0}, "infinite power"},
           {{.aggregators = {"a-dsgd"}, .symbol_share = 0}, "share of 0"},
           {{.aggregators = {"diloco"}, .momentum = 1}, "momentum 1"},
           {{.slowest = "2GHz"}, "give the lower first"},
           {{.deadline = "1us"}, "no device computes within the deadline"},
           {{.seconds = "5"}, "--seconds"},
       })
    refused([&] { check(one.options); }, one.says);
  refused([] { check(PlanOptions{.groups = 0}); }, "--groups");
  refused([] { check(PlanOptions{.groups = 5000, .workers = 5000}); }, "--workers");
  refused([] { check(PlanOptions{.parameters = 3}); }, "20 groups cannot share 3 parameters");
  refused([] { check(PlanOptions{.schemes = {"jiont"}}); }, "did you mean joint");
  refused([] { check(PlanOptions{.bits = 0}); }, "bits_per_parameter is 0");
  refused([] { check(PlanOptions{.file = "none.json"}); }, "none.json");
  refused([] { check(PlanOptions{.file = "none.json", .draws = true}); }, "--groups");
}

TEST(EdgeReport, OfPlansIsATableAndJson) {
  const PlanSettings settings = check(PlanOptions{.groups = 3});
  PlanReport report{.problem = "three", .groups = settings.file.problem, .plans = {}};
  for (const std::string& scheme : settings.schemes)
    report.plans.push_back(methods::edge::solve_paba(report.groups, scheme));
  EXPECT_THAT(to_text(report), HasSubstr("Proof: no plan with the freedom of joint"));
  const auto json = nlohmann::json::parse(to_json(report));
  ASSERT_EQ(json["plans"].size(), 5U);
  EXPECT_FALSE(json["plans"][0].contains("bound_seconds"));
  EXPECT_LT(json["plans"][4]["gap"], 1e-9);
  EXPECT_EQ(json["plans"][4]["bandwidth"].size(), 3U);
}

TEST(EdgeReport, OfRunsIsATableCsvJsonAndAPicture) {
  const RunSettings settings =
      check(RunOptions{.aggregators = {"mean", "gossip"}, .devices = 4, .rounds = 3});
  const methods::edge::Classification task(settings.shape);
  EdgeReport report{.problem = settings.described, .runs = {}};
  for (const methods::edge::EdgeSettings& one : settings.runs)
    report.runs.push_back({one, run_edge(one, task)});
  EXPECT_EQ(name_of(report, report.runs[0]), "mean");
  EXPECT_EQ(name_of(report, report.runs[1]), "gossip");
  EXPECT_THAT(to_text(report), HasSubstr("accuracy"));
  const std::string csv = to_csv(report);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 2 * 4);
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["runs"][0]["rounds"].size(), 4U);
  EXPECT_FALSE(json["runs"][1].contains("scheduler"));
  EXPECT_THAT(plot_of(report), HasSubstr("gossip"));
}

}  // namespace
}  // namespace dear::edge_command::edge_options_test
