#include "dear/systems/train_command/simulated_tuning.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/presets.h"
#include "dear/workload/zoo/device.h"
#include "dear/workload/zoo/make_workload.h"
#include "dear/workload/zoo/models.h"

namespace dear::train_command::simulated_tuning_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Cluster cluster() { return find_cluster("10gbe", 16); }

Workload workload() {
  const zoo::Model& model = zoo::find_model("resnet50");
  return zoo::make_workload(model, zoo::find_device(model.measured->device), {.batch = model.batch});
}

TEST(SimulatedTuning, ComesNearTheOptimumAndSaysSo) {
  const TuningReport report =
      tune_simulated(workload(), cluster(), {.policy = &find_policy("dear"), .noise = 0.01});
  ASSERT_EQ(report.true_seconds.size(), report.sizes.candidates.size());
  EXPECT_LE(report.true_seconds[report.choice], 1.03 * report.true_seconds[optimum_of(report)]);
  EXPECT_LE(report.trials.size(), 10U);
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["trials"].size(), report.trials.size());
  EXPECT_EQ(json["trials"][0]["seconds"], report.trials[0].seconds);
  EXPECT_EQ(json["on"], "simulation");
  EXPECT_GE(json["choice"]["true_seconds"], json["optimum"]["true_seconds"]);
  EXPECT_EQ(json["expected"].size(), report.sizes.candidates.size());
}

TEST(SimulatedTuning, IsTheSameForOneSeed) {
  const SimulatedTuningOptions options{.policy = &find_policy("dear"), .seed = 3, .prior = true};
  EXPECT_EQ(to_json(tune_simulated(workload(), cluster(), options)),
            to_json(tune_simulated(workload(), cluster(), options)));
}

TEST(SimulatedTuning, EveryMethodAndPlannedBuckets) {
  for (const tune::Method& method : tune::methods()) {
    const TuningReport report = tune_simulated(
        workload(), cluster(),
        {.policy = &find_policy("dear"), .method = std::string(method.name), .trials = 4, .planned = true});
    EXPECT_EQ(report.sizes.candidates.back().name, "planned");
    EXPECT_LE(report.trials.size(), 4U);
    const std::string picture = plot(report);
    EXPECT_THAT(picture, HasSubstr("planned"));
    EXPECT_THAT(picture, Not(HasSubstr("nan")));
    EXPECT_EQ(picture.find("<polygon") != std::string::npos, !report.expectations.empty());
  }
}

TEST(SimulatedTuning, MisjudgingStaysWithinItsError) {
  const Workload truth = workload();
  Workload wrong = truth;
  Cluster wrong_cluster = cluster();
  tune::Draws draws(1);
  misjudge(wrong, wrong_cluster, 0.25, draws);
  const double beta = wrong_cluster.dimensions[0].link.beta_seconds_per_byte /
                      cluster().dimensions[0].link.beta_seconds_per_byte;
  EXPECT_LE(std::abs(std::log(beta)), std::log(1.25) + 1e-12);
  EXPECT_NE(beta, 1);
  for (std::size_t l = 0; l < wrong.layers.size(); ++l)
    EXPECT_LE(std::abs(std::log(wrong.layers[l].forward_seconds / truth.layers[l].forward_seconds)),
              2 * std::log(1.25) + 1e-12);
}

}  // namespace
}  // namespace dear::train_command::simulated_tuning_test
