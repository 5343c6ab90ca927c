#include "dear/tools/cases/planned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/presets.h"
#include "dear/tools/cases/testing/sound_plan.h"
#include "dear/workload/zoo/models.h"

namespace dear::cases::planned_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

Scenario scenario_of(const ModelName& model, const std::string& cluster, const ModelOptions& options = {},
                     std::vector<int> ranks = {}) {
  return scenarios({.models = {model}, .clusters = {cluster}, .ranks = std::move(ranks), .model = options})
      .at(0);
}

void expect_sound(const Scenario& scenario) {
  SCOPED_TRACE(scenario.workload.name + " on " + scenario.cluster.name);
  const PlannedScenario planned = plan(scenario, find_options(PlanNames{}));
  EXPECT_THAT(testing::contradictions_in(planned), IsEmpty());
}

// Every model that there is, but those whose search takes seconds (bench/all_plans.cpp has all).
TEST(AllPlans, OfEveryModelAnswer) {
  for (const zoo::Model& model : zoo::models()) {
    if (model.name == "gpt-1t" || model.name == "llama-70b") continue;
    expect_sound(scenario_of(std::string(model.name), "geo-1gbit-32"));
  }
}

TEST(AllPlans, OnEveryClusterAnswer) {
  for (const ClusterPreset& preset : clusters())
    for (const char* const model : {"dlrm", "resnet18", "vgg16"})
      expect_sound(scenario_of(std::string(model), preset.cluster.name));
}

TEST(AllPlans, WithAccumulationLeaveOutWhatGathersInEveryPass) {
  const PlannedScenario planned =
      plan(scenario_of(std::string("dlrm"), "10gbe-64"),
           find_options(PlanNames{.policies = {"dear", "fsdp"}, .micro_batches = 4}));
  ASSERT_EQ(planned.answer.left_out.size(), 1U);
  EXPECT_EQ(planned.answer.left_out[0].policy->name, "fsdp");
  EXPECT_THAT(to_json({planned}), AllOf(HasSubstr("\"left_out\""), HasSubstr("gathers its parameters")));
}

Workload measured_on(std::string device) {
  Workload workload = scenario_of(std::string("dlrm"), "10gbe-64").workload;
  workload.device = std::move(device);
  return workload;
}

TEST(Device, OfAWorkloadIsThatOfTheCluster) {
  EXPECT_EQ(scenario_of(std::string("resnet18"), "a100-100gbit-512").workload.device, "a100");
  EXPECT_NO_THROW(scenario_of(measured_on("rtx2080ti"), "10gbe-64"));
  EXPECT_NO_THROW(scenario_of(measured_on("cpu, 4 threads"), "1gbit-4"));  // of no known device
  EXPECT_THAT(
      [] { scenario_of(measured_on("cpu, 4 threads"), "10gbe-64"); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("cpu, 4 threads"), HasSubstr("rtx2080ti"),
                                       HasSubstr("--scale-compute"), HasSubstr("dear profile --device"))));
  EXPECT_THAT(scenario_of(measured_on(""), "10gbe-64").origin, HasSubstr("unknown device"));
}

TEST(Device, KnowsTheMemoryOfARank) {
  EXPECT_EQ(scenario_of(measured_on(""), "10gbe-64").memory_bytes, std::int64_t{11} << 30);
  EXPECT_EQ(scenario_of(measured_on("a100"), "1gbit-4").memory_bytes, std::int64_t{80} << 30);
  EXPECT_EQ(scenario_of(measured_on("cpu, 4 threads"), "1gbit-4").memory_bytes, 0);
}

TEST(Device, MayBeScaledTo) {
  const Workload here = measured_on("cpu, 4 threads");
  const Scenario scaled = scenario_of(here, "10gbe-64", {.scale_compute = 0.25});
  EXPECT_DOUBLE_EQ(scaled.workload.forward_seconds(), here.forward_seconds() / 4);
  EXPECT_DOUBLE_EQ(scaled.workload.backward_seconds(), here.backward_seconds() / 4);
  EXPECT_DOUBLE_EQ(scaled.workload.update_seconds, here.update_seconds / 4);
  EXPECT_THAT(scaled.origin, HasSubstr("multiplied by 0.25"));
  for (const double factor : {0.0, -1.0, 1.0 / 0.0})
    EXPECT_THROW(scenario_of(here, "10gbe-64", {.scale_compute = factor}), ConfigError);
}

TEST(Jobs, MayCheckpointActivations) {
  const Scenario all = scenario_of(std::string("gpt2"), "a100-100gbit-512");
  const Scenario some =
      scenario_of(std::string("gpt2"), "a100-100gbit-512", {.checkpoint_activations = true});
  EXPECT_LT(
      4 * plan(some, find_options(PlanNames{.policies = {"dear"}}))
              .answer.rows[0]
              .evaluation.memory.activations,
      plan(all, find_options(PlanNames{.policies = {"dear"}})).answer.rows[0].evaluation.memory.activations);
  EXPECT_DOUBLE_EQ(some.workload.backward_seconds(),
                   all.workload.backward_seconds() + all.workload.forward_seconds());
}

TEST(Jobs, ThatCheckpointAreNotToldTo) {
  for (const bool checkpoint : {false, true}) {
    const Scenario scenario = scenario_of(std::string("gpt2-xl"), "100gbib-64",
                                          {.batch = 64, .checkpoint_activations = checkpoint});
    EXPECT_EQ(scenario.checkpointed, checkpoint);
    const plan::Answer answer = plan(scenario, find_options(PlanNames{.policies = {"wfbp"}})).answer;
    EXPECT_FALSE(answer.rows.at(0).fits);
    EXPECT_THAT(answer.verdict, Not(Contains(HasSubstr("with activation checkpointing"))));
  }
}

TEST(Pictures, MarkWhatToUseAndWhatOnlySimulates) {
  const Scenario scenario = scenario_of(std::string("dlrm"), "10gbe-64");
  const std::string svg = plot({plan(scenario, find_options(PlanNames{.policies = {"ddp", "dear"}}))});
  EXPECT_THAT(svg,
              AllOf(HasSubstr("dear, to use"), HasSubstr("ddp, simulated"), HasSubstr("dlrm on 10gbe-64")));
}

}  // namespace
}  // namespace dear::cases::planned_test
