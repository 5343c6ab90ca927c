#include "dear/simulated/kfac/kfac.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/error.h"
#include "dear/base/testing/paths.h"
#include "dear/zoo/models.h"

namespace dear::simulated::kfac::kfac_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

PublishedKfac published() {
  return read_published_kfac(dear::testing::source_file("docs/study/kfac/published.json"));
}

const Findings& findings() {
  static const Findings kFindings = simulate_models(published());
  return kFindings;
}

TEST(StudyOfKfac, RatiosAreWithinFivePercentGivenTheParts) {
  for (std::size_t i = 0; i < findings().models.size(); ++i) {
    const PublishedKfac figures = published();
    const PublishedKfac::Model& model = figures.models[i];
    SCOPED_TRACE(model.model);
    const std::vector<Fed>& fed = findings().models[i].fed;
    ASSERT_EQ(fed.size(), 3U);
    EXPECT_NEAR(fed[0].seconds / fed[2].seconds / (model.d / model.spd), 1, 0.05);
    EXPECT_NEAR(fed[1].seconds / fed[2].seconds / (model.mpd / model.spd), 1, 0.05);
    for (const Fed& one : fed) EXPECT_NEAR(one.parts.total(), one.seconds, 1e-9) << one.strategy;
  }
}

TEST(StudyOfKfac, EveryPublishedOrderComesOutWithCalibratedCosts) {
  for (const Order& order : orders_of(published(), findings())) EXPECT_EQ(order.calibrated, 4) << order.says;
}

// A figure of the half that is held back changes no constant.
TEST(StudyOfKfac, NothingIsFittedToTheOtherHalf) {
  PublishedKfac changed = published();
  for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) {
    changed.models[i].factors_sent = {.bulk = 1, .alone = 1, .threshold = 1, .rule = 1};
    changed.models[i].inverses = {.local = 1, .round_robin = 1, .balanced = 1};
    changed.models[i].d = 9;
  }
  std::vector<PublishedJob> jobs;
  for (int i = 0; i < 4; ++i) {
    dear::kfac::Job job;
    job.workload.name = "job";
    for (const std::int64_t dimension : {64, 512, 2048 >> (i % 2)}) {
      job.workload.tensors.push_back({.name = "w", .elements = dimension * dimension});
      job.workload.layers.push_back({.name = "layer",
                                     .tensors = {static_cast<TensorId>(job.workload.tensors.size() - 1)},
                                     .forward_seconds = 0.01,
                                     .backward_seconds = 0.02});
      job.curvature.push_back(dear::kfac::LayerCurvature{.inputs = dimension,
                                                         .outputs = dimension,
                                                         .input_factor_seconds = 0.01,
                                                         .output_factor_seconds = 0.01});
    }
    jobs.push_back({job, published().cycle_seconds, published().threshold_elements});
  }
  const dear::kfac::Costs one = calibrate(published(), jobs, fitted_half(4));
  const dear::kfac::Costs other = calibrate(changed, jobs, fitted_half(4));
  EXPECT_EQ(one.all_reduce.start_seconds, other.all_reduce.start_seconds);
  EXPECT_EQ(one.interference, other.interference);
  EXPECT_EQ(one.broadcast.seconds_per_element, other.broadcast.seconds_per_element);
  EXPECT_EQ(one.invert.seconds(1000), other.invert.seconds(1000));
}

TEST(StudyOfKfac, WritesItsPage) {
  const std::vector<study::StudyFile> files = study_of_kfac(published(), findings());
  ASSERT_EQ(files.size(), 5U);
  EXPECT_THAT(files[0].content, HasSubstr("holds"));
  const nlohmann::json results = nlohmann::json::parse(files[1].content);
  EXPECT_EQ(results["models"].size(), 4U);
  for (std::size_t i = 2; i < files.size(); ++i) EXPECT_THAT(files[i].content, HasSubstr("</svg>"));
}

TEST(StudyOfKfac, RefusesFiguresThatAreNone) {
  EXPECT_THAT([] { parse_published_kfac("{", "figures.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("figures.json")));
  EXPECT_THAT(
      [] { parse_published_kfac(R"({"format": "dear-published-kfac", "version": 1})", "figures.json"); },
      ThrowsMessage<ConfigError>(HasSubstr("figures.json")));
  EXPECT_THROW(parts_of(published(), "resnet50", "sgd"), ConfigError);
  EXPECT_EQ(parts_of(published(), "resnet50", "d-kfac").inverses_sent, 0);
}

}  // namespace
}  // namespace dear::simulated::kfac::kfac_test
