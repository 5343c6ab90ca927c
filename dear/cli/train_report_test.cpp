#include "dear/cli/train_report.h"

#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace dear::cli::train_report_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TrainResult run_of(const std::string& policy, double iteration, double exposed, const std::string& digest) {
  return {.policy = policy,
          .workers = 4,
          .steps = 3,
          .network = "modelled: 1gbit",
          .fusion = "25MiB",
          .optimizer = "adamw",
          .losses = {4.5, 3.25, 2.125},
          .times = {.iteration_seconds = {.median = iteration, .p10 = iteration / 2, .p90 = iteration * 2},
                    .compute_seconds = iteration - exposed,
                    .exposed_communication_seconds = exposed},
          .characters_per_second = 1234567.4,
          .digest = digest};
}

std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) {
    keys.push_back(item.key());
  }
  return keys;
}

TEST(TrainReport, NumbersHaveSeparators) {
  EXPECT_EQ(with_separators(0), "0");
  EXPECT_EQ(with_separators(999), "999");
  EXPECT_EQ(with_separators(1000), "1,000");
  EXPECT_EQ(with_separators(12345678), "12,345,678");
  EXPECT_EQ(with_separators(-999), "-999");
  EXPECT_EQ(with_separators(-1000), "-1,000");
}

Comparison comparison_of(const std::vector<double>& ratios) {
  Comparison comparison{.rounds = 12, .counted_rounds = 11};
  for (const double ratio : ratios) {
    comparison.speed_ups.push_back(
        {.policy = "policy of " + std::to_string(comparison.speed_ups.size()),
         .ratio = {.first = ratio - 0.125, .median = ratio, .third = ratio + 0.25}});
  }
  return comparison;
}

TEST(TrainReport, TheTableComparesWithTheFirst) {
  const std::string text = to_text(
      {run_of("serial", 0.1, 0.05, "aa"), run_of("wfbp", 0.08, 0.02, "bb"), run_of("dear", 0.05, 0.0, "aa")},
      comparison_of({1, 1.25, 2}));
  EXPECT_EQ(
      text,
      "policy  iteration  computation  exposed communication  characters/s  speed-up     quartiles  same "
      "parameters\n"
      "serial  100.00 ms     50.00 ms      50.00 ms (50.0 %)     1,234,567      1.00  0.88 to 1.25           "
      "   yes\n"
      "wfbp     80.00 ms     60.00 ms      20.00 ms (25.0 %)     1,234,567      1.25  1.12 to 1.50           "
      "    no\n"
      "dear     50.00 ms     50.00 ms        0.00 ms (0.0 %)     1,234,567      2.00  1.88 to 2.25           "
      "   yes\n"
      "policies took turns, 12 each; the first does not count; speed-up over serial in one round of turns: "
      "median and quartiles of 11 rounds\n");
}

TEST(TrainReport, SpeedUpsOfAMachineThatWasNotQuietHaveAQuestionMark) {
  Comparison comparison = comparison_of({1, 2});
  comparison.quiet = false;
  comparison.remark = "The machine was not quiet.";
  const std::string text =
      to_text({run_of("serial", 0.1, 0.05, "aa"), run_of("dear", 0.05, 0.0, "aa")}, comparison);
  EXPECT_THAT(text, AllOf(HasSubstr(" 1.00 ?  "), HasSubstr(" 2.00 ?  ")));
  EXPECT_TRUE(text.ends_with("rounds\nThe machine was not quiet.\n"));
}

TEST(TrainReport, AnOnlyRoundCounts) {
  Comparison comparison = comparison_of({1});
  comparison.rounds = comparison.counted_rounds = 1;
  EXPECT_THAT(to_text({run_of("dear", 1, 0, "aa")}, comparison),
              HasSubstr("policies took turns, 1 each; speed-up over dear in one round of turns: median and "
                        "quartiles of 1 round\n"));
}

TEST(TrainReport, OneRunTellsLossSpeedAndDigest) {
  EXPECT_THAT(to_text(run_of("dear", 0.1, 0.025, "c0ffee")),
              AllOf(HasSubstr("dear: loss 4.500 at first, 2.125 at last, in 3 steps\n"),
                    HasSubstr("1,234,567 characters/s"), HasSubstr("(25.0 %)"), HasSubstr("c0ffee")));
}

TEST(TrainReport, ANetworkThatWasModelledIsSaidToBe) {
  EXPECT_THAT(network_line("modelled: 1gbit", "shm"),
              AllOf(HasSubstr("modelled: 1gbit"), Not(HasSubstr("shm"))));
  EXPECT_EQ(network_line("", "shm, 4 ranks on this host"), "network: real, shm, 4 ranks on this host\n");
}

TEST(TrainReport, JsonOfOneRun) {
  const auto json = nlohmann::json::parse(to_json(run_of("dear", 0.5, 0.125, "c0ffee")));
  EXPECT_THAT(keys_of(json),
              UnorderedElementsAre("policy", "workers", "steps", "network", "fusion", "optimizer", "losses",
                                   "step_seconds", "iteration_seconds", "compute_seconds",
                                   "exposed_communication_seconds", "characters_per_second", "digest"));
  EXPECT_EQ(json.at("policy"), "dear");
  EXPECT_EQ(json.at("workers"), 4);
  EXPECT_EQ(json.at("steps"), 3);
  EXPECT_EQ(json.at("network"), "modelled: 1gbit");
  EXPECT_EQ(json.at("losses"), (std::vector<double>{4.5, 3.25, 2.125}));
  EXPECT_EQ(json.at("iteration_seconds"), (nlohmann::json{{"median", 0.5}, {"p10", 0.25}, {"p90", 1.0}}));
  EXPECT_EQ(json.at("compute_seconds"), 0.375);
  EXPECT_EQ(json.at("exposed_communication_seconds"), 0.125);
  EXPECT_EQ(json.at("digest"), "c0ffee");
}

TEST(TrainReport, SaysWhatTuningChose) {
  TrainResult run = run_of("dear", 0.5, 0.125, "c0ffee");
  EXPECT_EQ(to_text(run).find("buckets:"), std::string::npos);
  const Workload workload{.name = "two",
                          .tensors = {{"a", 100'000, DType::f32}, {"b", 100'000, DType::f32}},
                          .layers = {{.name = "first", .tensors = {0}}, {.name = "second", .tensors = {1}}}};
  run.tuning = TuningReport{.where = "training", .sizes = size_candidates(workload), .settled = false};
  EXPECT_THAT(to_text(run), HasSubstr("buckets: not tuned, the run was too short\n"));
  run.tuning->choice = run.tuning->sizes.candidates.size() - 1;
  run.tuning->trials = {{.candidate = 0, .seconds = 2}, {.candidate = run.tuning->choice, .seconds = 1}};
  EXPECT_THAT(to_text(run), HasSubstr("buckets: all (1 bucket), of 2 kinds tried; tuning had not settled\n"));
  run.tuning->settled = true;
  run.tuning->remark = "no room";
  EXPECT_THAT(to_text(run), HasSubstr("of 2 kinds tried; what was learned is not kept: no room\n"));
  run.tuning->remark = "";
  EXPECT_THAT(to_text(run), HasSubstr("buckets: all (1 bucket), of 2 kinds tried\n"));
  const auto tuning = nlohmann::json::parse(to_json(run)).at("tuning");
  EXPECT_EQ(tuning.at("choice").at("candidate"), "all");
  EXPECT_EQ(tuning.at("trials").size(), 2U);
  EXPECT_EQ(tuning.at("settled"), true);
}

TEST(TrainReport, JsonOfAComparisonHasTheRunsAndTheSpeedUps) {
  const std::vector<TrainResult> runs = {run_of("serial", 0.5, 0.1, "aa"), run_of("dear", 0.25, 0.0, "aa")};
  const auto json = nlohmann::json::parse(to_json(runs, comparison_of({1, 2})));
  EXPECT_THAT(keys_of(json), UnorderedElementsAre("runs", "comparison"));
  ASSERT_EQ(json.at("runs").size(), 2U);
  EXPECT_EQ(json.at("runs")[1], nlohmann::json::parse(to_json(runs[1])));
  EXPECT_EQ(json.at("comparison"),
            (nlohmann::json{{"first", "policy of 0"},
                            {"rounds", 12},
                            {"counted_rounds", 11},
                            {"quiet", true},
                            {"remark", ""},
                            {"speed_up",
                             {{{"policy", "policy of 0"}, {"median", 1.0}, {"q1", 0.875}, {"q3", 1.25}},
                              {{"policy", "policy of 1"}, {"median", 2.0}, {"q1", 1.875}, {"q3", 2.25}}}}}));
}

TEST(TrainReport, JsonSaysThatTheMachineWasNotQuiet) {
  Comparison comparison = comparison_of({1});
  comparison.quiet = false;
  comparison.remark = "The machine was not quiet.";
  const auto json = nlohmann::json::parse(to_json(std::vector{run_of("dear", 1, 0, "aa")}, comparison));
  EXPECT_EQ(json.at("comparison").at("quiet"), false);
  EXPECT_EQ(json.at("comparison").at("remark"), "The machine was not quiet.");
}

TEST(TrainReport, ALossThatIsNoNumberIsNull) {
  TrainResult run = run_of("dear", 1, 0, "aa");
  run.losses = {1.0, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_TRUE(nlohmann::json::parse(to_json(run)).at("losses")[1].is_null());
}

TEST(TrainReport, ParametersAreComparedByDigest) {
  EXPECT_TRUE(same_parameters(run_of("serial", 1, 0, "aa"), run_of("dear", 1, 0, "aa")));
  EXPECT_FALSE(same_parameters(run_of("serial", 1, 0, "aa"), run_of("dear", 1, 0, "ab")));
}

}  // namespace
}  // namespace dear::cli::train_report_test
