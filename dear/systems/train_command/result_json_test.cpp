#include "dear/systems/train_command/result_json.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/systems/train_command/testing/results.h"

namespace dear::train_command::result_json_test {
namespace {

using testing::comparison_of;
using testing::run_of;
using ::testing::UnorderedElementsAre;

std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) {
    keys.push_back(item.key());
  }
  return keys;
}

TEST(ResultJson, OfOneRun) {
  const auto json = nlohmann::json::parse(to_json(run_of("dear", 0.5, 0.125, "c0ffee")));
  EXPECT_THAT(keys_of(json), UnorderedElementsAre(
                                 "policy", "workers", "steps", "network", "fusion", "optimizer", "gradients",
                                 "losses", "step_seconds", "iteration_seconds", "compute_seconds",
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

TEST(ResultJson, OfAComparisonHasTheRunsAndTheSpeedUps) {
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

TEST(ResultJson, SaysThatTheMachineWasNotQuiet) {
  Comparison comparison = comparison_of({1});
  comparison.quiet = false;
  comparison.remark = "The machine was not quiet.";
  const auto json = nlohmann::json::parse(to_json(std::vector{run_of("dear", 1, 0, "aa")}, comparison));
  EXPECT_EQ(json.at("comparison").at("quiet"), false);
  EXPECT_EQ(json.at("comparison").at("remark"), "The machine was not quiet.");
}

TEST(ResultJson, ALossThatIsNoNumberIsNull) {
  TrainResult run = run_of("dear", 1, 0, "aa");
  run.losses = {1.0, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_TRUE(nlohmann::json::parse(to_json(run)).at("losses")[1].is_null());
}

TEST(ResultJson, HasWhatTuningTried) {
  TrainResult run = run_of("dear", 0.5, 0.125, "c0ffee");
  const Workload workload{
      .name = "one", .tensors = {{"a", 100'000, DType::f32}}, .layers = {{.name = "first", .tensors = {0}}}};
  run.tuning = TuningReport{.where = "training", .sizes = size_candidates(workload)};
  run.tuning->choice = run.tuning->sizes.candidates.size() - 1;
  run.tuning->trials = {{.candidate = 0, .seconds = 2}, {.candidate = run.tuning->choice, .seconds = 1}};
  const auto tuning = nlohmann::json::parse(to_json(run)).at("tuning");
  EXPECT_EQ(tuning.at("choice").at("candidate"), "all");
  EXPECT_EQ(tuning.at("trials").size(), 2U);
  EXPECT_EQ(tuning.at("settled"), true);
}

}  // namespace
}  // namespace dear::train_command::result_json_test
