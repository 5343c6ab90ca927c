#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/trace/trace.h"
#include "dear/base/vocabulary/error.h"
#include "dear/tools/cases/cases.h"
#include "dear/tools/cases/planned.h"
#include "dear/workload/layers/testing/workloads.h"
#include "dear/workload/zoo/device.h"

namespace dear::cases::compressed_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Scenario scenario(const std::string& device = "") {
  return {.workload = dear::testing::two_layers(4000),
          .cluster = flat_cluster({.name = "pair", .link = {.beta_seconds_per_byte = 1e-3}}, 2),
          .device = device,
          .origin = "made up"};
}

CodecChoice::Known known(const std::string& codec, const Compression& compression, const Scenario& where) {
  return CodecChoice::parse(codec).resolve(compression, {}, where, 2);
}

TEST(CodecChoice, TakesTheRooflineOfADevice) {
  const Compression half{.scheme = Scheme::fp16};
  const CodecChoice::Known roofline = known("auto", half, scenario("a100"));
  const zoo::Device& device = zoo::find_device("a100");
  EXPECT_DOUBLE_EQ(roofline.times.encode_seconds_per_byte,
                   1.5 / (device.bytes_per_second * device.memory_efficiency));
  EXPECT_DOUBLE_EQ(roofline.times.step_seconds, device.launch_seconds);
  EXPECT_TRUE(roofline.times.shares_compute);
  EXPECT_THAT(roofline.origin, HasSubstr("roofline of a100"));
  EXPECT_FALSE(known("roofline,beside", half, scenario("a100")).times.shares_compute);
  EXPECT_EQ(known("none", half, scenario("a100")).times.encode_seconds_per_byte, 0);
}

TEST(CodecChoice, MeasuresWhereThereIsNoDevice) {
  const CodecChoice::Known measured = known("auto", {.scheme = Scheme::fp16}, scenario());
  EXPECT_GT(measured.times.encode_seconds_per_byte, 0);
  EXPECT_THAT(measured.origin, HasSubstr("measured here"));
  EXPECT_THAT(known("measured", {.scheme = Scheme::fp16}, scenario("a100")).origin,
              HasSubstr("measured here"));
  EXPECT_THROW(known("roofline", {.scheme = Scheme::fp16}, scenario()), ConfigError);
}

TEST(CodecChoice, RefusesWhatThereIsNot) {
  for (const char* const text : {"", "fast", ",beside", "auto,aside"})
    EXPECT_THROW(CodecChoice::parse(text), ConfigError) << text;
}

CaseOptions options(const CompressionNames& compression) {
  return find_options({.policies = {"wfbp", "dear"}, .fusion = "layer", .compression = compression}, {});
}

TEST(CompressedCases, StandAfterTheirPolicyWithout) {
  const std::vector<Scenario> scenarios = {scenario()};
  const std::vector<Case> cases =
      simulate(scenarios, options({.compressions = {"fp16", "random-block:0.01"}, .codec = "none"}));
  std::vector<std::string> policies, compressions;
  for (const Case& one : cases) {
    policies.emplace_back(one.policy->name);
    compressions.push_back(one.compression());
  }
  EXPECT_THAT(policies, ElementsAre("wfbp", "wfbp", "wfbp", "dear", "dear", "dear"));
  EXPECT_THAT(compressions, ElementsAre("", "fp16", "random-block:0.01", "", "fp16", "random-block:0.01"));
  // All-reduces of 16 s: the last is exposed, and what of the first no backward hides.
  EXPECT_NEAR(cases[0].evaluation.iteration.seconds, 2 + 2 + 32, 1e-9);
  EXPECT_NEAR(cases[1].evaluation.iteration.seconds, 2 + 2 + 16, 1e-9);
  const nlohmann::json list = nlohmann::json::parse(to_json(cases));
  EXPECT_FALSE(list[0].contains("compression"));
  EXPECT_EQ(list[1].at("compression"), "fp16");
  EXPECT_EQ(list[1].at("codec_seconds"), 0);
  EXPECT_THAT(plot(cases, "title"), HasSubstr("dear, layer, fp16"));
  EXPECT_EQ(trace_of(cases[1]).spans.size(), cases[1].evaluation.spans.size());
}

TEST(CompressedCases, RefuseWhatCannotBe) {
  EXPECT_THROW(options({.compressions = {"zip"}}), ConfigError);
  EXPECT_THROW(options({.compressions = {"fp16"}, .codec = "fast"}), ConfigError);
  for (const double density : {0.0, -0.1, 1.1})
    EXPECT_THROW(options({.union_density = density}), ConfigError);
}

TEST(CompressedPlans, AreWrittenAsJson) {
  const Scenario where = scenario();
  plan::Options plan_options = find_options(PlanNames{.policies = {"serial"}, .algorithm = "ring"});
  Compressions compressions({.compressions = {"fp16"}, .codec = "none"});
  const PlannedScenario planned = plan(where, plan_options, compressions.in(where, 2));
  EXPECT_THAT(planned.codecs, ElementsAre(HasSubstr("no time")));
  const nlohmann::json json = nlohmann::json::parse(to_json({planned}))[0];
  const nlohmann::json& row = json.at("compressed").at(0);
  EXPECT_EQ(row.at("compression"), "fp16");
  EXPECT_EQ(row.at("policy"), "serial");
  EXPECT_NEAR(row.at("iteration_seconds"), 6 + 16, 1e-9);
  EXPECT_NEAR(row.at("dense_iteration_seconds"), 6 + 32, 1e-9);
  EXPECT_TRUE(row.at("pays_below_bits_per_second").is_null());
  EXPECT_EQ(row.at("why_not_above"), "");
  EXPECT_FALSE(nlohmann::json::parse(to_json({plan(where, plan_options)}))[0].contains("compressed"));
}

}  // namespace
}  // namespace dear::cases::compressed_test
