#include "dear/tools/case_options/scenario.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/cluster_file.h"
#include "dear/workload/layers/workload_file.h"

namespace dear::cli::scenario_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> told(const ScenarioOptions& options) {
  std::vector<std::string> lines;
  for (const cases::Scenario& scenario : scenarios(options))
    lines.push_back(scenario.workload.name + " on " + scenario.cluster.name + " x " +
                    std::to_string(scenario.cluster.ranks()));
  return lines;
}

std::string refusal(const ScenarioOptions& options) {
  try {
    (void)scenarios(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was refused";
}

struct Files : ::testing::Test {
  Files() {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder = std::filesystem::path(::testing::TempDir()) / ("dear_scenario_" + name);
    std::filesystem::create_directories(folder);
  }
  ~Files() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  [[nodiscard]] std::string path(const char* name) const { return (folder / name).string(); }
  std::filesystem::path folder;
};

TEST(Scenarios, AreAllOfAllRanksInnermost) {
  EXPECT_THAT(
      told({.models = {"resnet50", "bert-base"}, .clusters = {"10gbe-64,100gbib-64"}, .ranks = {4, 64}}),
      ElementsAre("resnet50 on 10gbe-64 x 4", "resnet50 on 10gbe-64 x 64", "resnet50 on 100gbib-64 x 4",
                  "resnet50 on 100gbib-64 x 64", "bert-base on 10gbe-64 x 4", "bert-base on 10gbe-64 x 64",
                  "bert-base on 100gbib-64 x 4", "bert-base on 100gbib-64 x 64"));
  EXPECT_THAT(told({.models = {"resnet50"}, .clusters = {"10gbe-64", "geo-1gbit-32"}}),
              ElementsAre("resnet50 on 10gbe-64 x 64", "resnet50 on geo-1gbit-32 x 32"));
}

// Commas part names, but not the keys of a network.
TEST(Scenarios, TakeNetworksByNameAndByNumbers) {
  const std::vector<cases::Scenario> all = scenarios(
      {.models = {"resnet50"}, .clusters = {"1gbit,10gbe", "bandwidth=8gbit,latency=50us"}, .ranks = {16}});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].cluster.name, "1gbit");
  EXPECT_EQ(all[1].cluster.name, "10gbe");
  ASSERT_EQ(all[2].cluster.dimensions.size(), 1U);
  EXPECT_DOUBLE_EQ(all[2].cluster.dimensions[0].link.beta_seconds_per_byte, 1e-9);
  EXPECT_DOUBLE_EQ(all[2].cluster.dimensions[0].link.alpha_seconds, 50e-6);
  EXPECT_EQ(all[2].cluster.ranks(), 16);
}

// The option, else the cluster's device, else the one that the model was measured on.
TEST(Scenarios, SayWhereTimesComeFrom) {
  const auto origin = [](const ScenarioOptions& options) { return scenarios(options).at(0).origin; };
  EXPECT_EQ(origin({.models = {"resnet50"}, .clusters = {"10gbe-64"}}),
            "64 samples a rank on rtx2080ti in fp32, scaled to a measured iteration");
  EXPECT_EQ(origin({.models = {"resnet50"}, .clusters = {"dgx-h100-400gbit-1024"}, .model = {.batch = 32}}),
            "32 samples a rank on h100 in fp32, by its roofline");
  EXPECT_EQ(
      origin({.models = {"resnet50"}, .clusters = {"dgx-h100-400gbit-1024"}, .model = {.device = "a100"}}),
      "64 samples a rank on a100 in fp32, by its roofline");
  EXPECT_EQ(origin({.models = {"resnet50"}, .clusters = {"1gbit"}, .ranks = {2}}),
            "64 samples a rank on rtx2080ti in fp32, scaled to a measured iteration");
}

TEST(Scenarios, TakeBatchSizeAndType) {
  const auto workload = [](const ScenarioOptions& options) { return scenarios(options).at(0).workload; };
  const Workload usual = workload({.models = {"bert-base"}, .clusters = {"dgx-h100-400gbit-1024"}});
  const Workload whole =
      workload({.models = {"bert-base"}, .clusters = {"dgx-h100-400gbit-1024"}, .model = {.dtype = "fp32"}});
  EXPECT_EQ(2 * usual.bytes(), whole.bytes());
  EXPECT_LT(usual.forward_seconds(), whole.forward_seconds());
  const Workload longer = workload(
      {.models = {"bert-base"}, .clusters = {"dgx-h100-400gbit-1024"}, .model = {.sample_size = 128}});
  EXPECT_GT(longer.forward_seconds(), 1.5 * usual.forward_seconds());
  const Workload fewer = workload({.models = {"bert-base"}, .clusters = {"10gbe-64"}, .model = {.batch = 8}});
  EXPECT_LT(fewer.forward_seconds(),
            workload({.models = {"bert-base"}, .clusters = {"10gbe-64"}}).forward_seconds());
}

TEST_F(Files, AreReadAsTheyAre) {
  write_workload({.name = "own",
                  .tensors = {{.name = "t", .elements = 4}},
                  .layers = {{.name = "l", .tensors = {0}, .forward_seconds = 1, .backward_seconds = 2}}},
                 path("job.json"));
  write_cluster({.name = "mine", .dimensions = {{.name = "node", .size = 3}}, .device = "v100"},
                path("cluster.json"));
  const std::vector<cases::Scenario> all =
      scenarios({.models = {path("job.json")}, .clusters = {path("cluster.json")}});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].workload.name, "own");
  EXPECT_EQ(all[0].workload.forward_seconds(), 1);
  EXPECT_EQ(all[0].cluster.name, "mine");
  EXPECT_EQ(all[0].cluster.ranks(), 3);
  EXPECT_EQ(all[0].origin, "read from " + path("job.json") + ", of an unknown device, taken for v100");
  for (const ScenarioOptions& options :
       {ScenarioOptions{
            .models = {path("job.json")}, .clusters = {path("cluster.json")}, .model = {.device = "a100"}},
        ScenarioOptions{
            .models = {path("job.json")}, .clusters = {path("cluster.json")}, .model = {.batch = 4}},
        ScenarioOptions{
            .models = {path("job.json")}, .clusters = {path("cluster.json")}, .model = {.sample_size = 4}},
        ScenarioOptions{
            .models = {path("job.json")}, .clusters = {path("cluster.json")}, .model = {.dtype = "fp16"}}})
    EXPECT_THAT(refusal(options), HasSubstr("workload file"));
  EXPECT_THAT(refusal({.models = {path("none.json")}, .clusters = {path("cluster.json")}}),
              HasSubstr("none.json"));
}

TEST(Scenarios, RefuseWhatThereIsNotAndListWhatThereIs) {
  EXPECT_THAT(refusal({.models = {"resnet51"}, .clusters = {"10gbe-64"}}),
              ::testing::AllOf(HasSubstr("resnet51"), HasSubstr("resnet50"), HasSubstr("bert-large")));
  EXPECT_THAT(refusal({.models = {"resnet50"}, .clusters = {"11gbe"}, .ranks = {4}}),
              ::testing::AllOf(HasSubstr("11gbe"), HasSubstr("10gbe-64"), HasSubstr("100gbib")));
  EXPECT_THAT(refusal({.models = {"resnet50"}, .clusters = {"10gbe"}}), HasSubstr("say how many"));
  EXPECT_THAT(refusal({.models = {"resnet50"}, .clusters = {"10gbe-64"}, .model = {.device = "h200x"}}),
              ::testing::AllOf(HasSubstr("h200x"), HasSubstr("h100")));
  EXPECT_THAT(refusal({.models = {"resnet50"}, .clusters = {"10gbe-64"}, .model = {.dtype = "fp31"}}),
              HasSubstr("fp31"));
  EXPECT_THAT(refusal({.models = {"resnet50"}, .clusters = {"10gbe-64,"}}), HasSubstr("''"));
}

TEST(Scenarios, RefuseRanksThatLeaveANodePartlyFilled) {
  EXPECT_THAT(refusal({.models = {"resnet50"}, .clusters = {"10gbe-64"}, .ranks = {4, 6}}),
              HasSubstr("'10gbe-64' has no part of 6 ranks"));
  EXPECT_THAT(refusal({.models = {"resnet50"}, .clusters = {"10gbe-64"}, .ranks = {128}}),
              HasSubstr("no part of 128 ranks"));
}

}  // namespace
}  // namespace dear::cli::scenario_test
