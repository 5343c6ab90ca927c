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

// The verdicts on what the model misses, each of a result of which it is wrong.
TEST(LeastExplained, SaysWhatTheNumbersSay) {
  Published published = figures_of({100, 200});
  published.figures[1].method = "Merging";
  const Unexplained right{.figure = 1,
                          .error = 0.2,
                          .of_serial = 1.01,
                          .pairs_out_of_order = 3,
                          .of_this_figure = 2,
                          .buckets = 7,
                          .merging_launch_seconds = 4e-3,
                          .merged = {{"a", 0.7}, {"b", 1.02}}};
  const std::string text = conclusion_of(published, right);
  for (const char* const words :
       {"Merging with a on x", "+20.0 %", "as slow as nothing overlapped", "Of the 3 pairs", "2 are of this",
        "7 buckets", "4.00 ms", "0.70 times the published throughput of a", "no one start-up explains"})
    EXPECT_THAT(text, HasSubstr(words));
  Unexplained other = right;
  other.merged.front().second = 0.96;
  EXPECT_THAT(conclusion_of(published, other), HasSubstr("So one longer start-up explains"));
  other.of_serial = 1.2;
  EXPECT_THAT(conclusion_of(published, other), HasSubstr("1.20 times the throughput of nothing overlapped"));
  other.merging_launch_seconds.reset();
  EXPECT_THAT(conclusion_of(published, other), HasSubstr("No start-up up to a second"));
}

TEST(LeastExplained, NeedsAFigureThatWasHeldBack) {
  EXPECT_THROW(least_explained(figures_of({1}), {.fitted = {true}, .modelled = {1}}), ConfigError);
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

// The figure, its pairs and its error are those of the judgement; the launch is a border of the rule.
TEST_F(OfTheProject, LeavesOneFigureUnexplainedMost) {
  const Unexplained one = least_explained(published, fitted);
  EXPECT_FALSE(fitted.fitted[one.figure]);
  EXPECT_NEAR(std::abs(one.error), fitted.of_held_back.largest_error, 1e-12);
  EXPECT_EQ(one.pairs_out_of_order, fitted.of_held_back.pairs - fitted.of_held_back.pairs_in_order);
  EXPECT_LE(one.of_this_figure, one.pairs_out_of_order);
  ASSERT_TRUE(one.merging_launch_seconds);
  EXPECT_GT(one.buckets, 1U);
  EXPECT_GT(*one.merging_launch_seconds, fitted.constants.launch_seconds);
  // With launches that merge nothing more, the ratios would be those of the fit.
  for (const auto& [model, ratio] : one.merged) EXPECT_NE(ratio, 1 + one.error) << model;
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
