#include "studies/paper/calibrate.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"

namespace dear::studies::calibrate_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Published figures_of(const std::vector<double>& samples) {
  Published published{.source = "made up", .ranks = 4, .jobs = {{.model = "a"}, {.model = "b"}}};
  for (std::size_t i = 0; i < samples.size(); ++i)
    published.figures.push_back({.model = i % 4 < 2 ? "a" : "b",
                                 .cluster = i < 4 ? "x" : "y",
                                 .method = {},
                                 .policy = {},
                                 .fusion = {},
                                 .samples_per_second = samples[i]});
  return published;
}

TEST(Halves, AreDiagonals) {
  const std::vector<bool> half = diagonal(figures_of({1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_THAT(half, ElementsAre(true, true, false, false, false, false, true, true));
  EXPECT_THAT(other_half(half), ElementsAre(false, false, true, true, true, true, false, false));
}

// Two figures each of a and b on x, then on y.
TEST(Judging, CountsErrorsAndOrders) {
  const Published published = figures_of({100, 200, 100, 100.5, 100, 200, 100, 200});
  const std::vector<double> modelled = {110, 150, 70, 90, 300, 200, 100, 201};
  const Judgement all = judge(published, modelled, std::vector<bool>(8, true));
  // The middle two of the errors 0.1, 0.25, 0.3, 0.104..., 2, 0, 0, 0.005 are 0.1 and 0.104...
  EXPECT_NEAR(all.median_error, (0.1 + 10.5 / 100.5) / 2, 1e-12);
  EXPECT_NEAR(all.largest_error, 2, 1e-12);
  EXPECT_EQ(all.pairs, 3);  // b on x is a tie
  EXPECT_EQ(all.pairs_in_order, 2);
  const Judgement one = judge(published, modelled, {true, true, false, false, false, false, false, false});
  EXPECT_NEAR(one.median_error, 0.175, 1e-12);
  EXPECT_EQ(one.pairs, 1);
}

TEST(Fitting, NeedsFigures) {
  const Published published = figures_of({1, 1});
  EXPECT_THROW(fit(published, {false, false}), ConfigError);
}

class OfTheProject : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    published = read_published(dear::testing::source_file("docs/study/published.json"));
    fitted = fit(published, diagonal(published));
    swapped = fit(published, other_half(diagonal(published)));
  }
  static Published published;
  static Fit fitted, swapped;
};
Published OfTheProject::published;
Fit OfTheProject::fitted, OfTheProject::swapped;

TEST_F(OfTheProject, PredictsTheHalfThatWasHeldBack) {
  for (const Fit* one : {&fitted, &swapped}) {
    EXPECT_LT(one->of_held_back.median_error, 0.15);
    EXPECT_GE(one->of_held_back.pairs_in_order, 0.8 * one->of_held_back.pairs);
    EXPECT_LT(one->of_fitted.median_error, 0.15);
  }
  EXPECT_LT(fitted.of_held_back.largest_error, 0.25);
}

TEST_F(OfTheProject, GivesTheConstantsOfThePresets) {
  const auto near = [](double a, double b) { return std::abs(a / b - 1) < 0.01; };
  EXPECT_PRED2(near, fitted.constants.launch_seconds, kRtx2080Ti.launch_seconds);
  EXPECT_PRED2(near, fitted.constants.hold_seconds, kRtx2080Ti.hold_seconds);
  EXPECT_PRED2(near, fitted.constants.node_bytes_per_second, kRtx2080Ti.node_bytes_per_second);
  EXPECT_PRED2(near, fitted.constants.node_slowdown, kRtx2080Ti.node_slowdown);
}

TEST_F(OfTheProject, IsReportedFigureByFigure) {
  const std::string report = report_of(published, fitted, swapped);
  for (const PublishedFigure& figure : published.figures) {
    EXPECT_THAT(report, HasSubstr(figure.method));
    EXPECT_THAT(report, HasSubstr(std::to_string(static_cast<int>(figure.samples_per_second))));
  }
  EXPECT_THAT(report, HasSubstr("held-back half"));
}

}  // namespace
}  // namespace dear::studies::calibrate_test
