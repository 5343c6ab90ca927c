#include "dear/predict/sim/variation.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/collective_times.h"
#include "dear/predict/sim/simulate.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/random_job.h"
#include "dear/workload/layers/testing/workloads.h"

namespace dear::sim::variation_test {
namespace {

using ::testing::ElementsAre;

// Seconds of the one job of these tests: two layers, forward 1 + 1, backward 2 + 2, a bucket each; a
// reduce-scatter or all-gather takes 1, an all-reduce 2.
using dear::testing::two_layers;
constexpr Link kLink{.alpha_seconds = 0, .beta_seconds_per_byte = 0.25};

MakeNetwork closed_form(const std::vector<double>& seconds) {
  return [&](int ranks) { return std::make_unique<ClosedFormNetwork>(seconds, ranks); };
}

std::vector<double> samples_of(std::string_view policy, const Variation& variation) {
  const Workload workload = two_layers();
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule schedule = make_schedule(find_policy(policy), workload, grouping);
  const std::vector<double> seconds = step_seconds(schedule, workload, grouping, kLink, 2);
  return iteration_samples(schedule, seconds, variation, closed_form(seconds), 16).iteration_seconds;
}

TEST(Variation, OneRankStandsForAllThatAreAlike) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    dear::testing::Random random(seed);
    const Workload workload = dear::testing::random_workload(random, 8);
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    const Schedule schedule = make_schedule(find_policy(seed % 2 == 0 ? "dear" : "wfbp"), workload, grouping);
    const std::vector<double> seconds = step_seconds(schedule, workload, grouping, kLink, 4);
    const Result one = simulate(schedule, workload, grouping, kLink, {.ranks = 4, .iterations = 40});
    const std::vector<Straggler> stragglers = {{.rank = 1, .slowdown = 1.5}, {.rank = 3, .slowdown = 1.5}};
    const auto of = [&](std::vector<double> slowdowns) {
      return iteration_samples(schedule, seconds, {.slowdowns = std::move(slowdowns)}, closed_form(seconds),
                               40)
          .iteration_seconds[0];
    };
    EXPECT_DOUBLE_EQ(of({1}), one.iteration_seconds);
    EXPECT_DOUBLE_EQ(of({1, 1, 1, 1}), one.iteration_seconds);
    EXPECT_DOUBLE_EQ(of(folded_slowdowns(stragglers, 4)), of(all_slowdowns(stragglers, 4)));
  }
}

// serial: 6 of computation and 4 of all-reduces; a rank twice as slow makes all wait 6 more.
TEST(Variation, TheSlowestRankSetsThePace) {
  EXPECT_THAT(samples_of("serial", {.slowdowns = {1}}), ElementsAre(10));
  EXPECT_THAT(samples_of("serial", {.slowdowns = {1, 2}}), ElementsAre(16));
  EXPECT_THAT(samples_of("serial", {.slowdowns = {2, 1, 1}}), ElementsAre(16));
}

TEST(Variation, FoldingKeepsOneOfEachKind) {
  const std::vector<Straggler> stragglers = {{.rank = 0, .slowdown = 2}, {.rank = 5, .slowdown = 2}};
  EXPECT_THAT(all_slowdowns(stragglers, 3), ElementsAre(2, 1, 1));
  EXPECT_THAT(folded_slowdowns(stragglers, 131'072), ElementsAre(1, 2));
  EXPECT_THAT(folded_slowdowns({{.rank = 0, .slowdown = 2}}, 1), ElementsAre(2));
}

TEST(Variation, JitterHasTheMeanAndTheDeviationAskedFor) {
  const Variation variation{.jitter = 0.2};
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 200'000;
  for (int i = 0; i < kDraws; ++i) {
    const double factor = jitter_factor(variation, i % 3, i % 7, {static_cast<StepId>(i % 100), i});
    EXPECT_GT(factor, 0);
    sum += factor;
    squares += factor * factor;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 1, 0.002);
  EXPECT_NEAR(std::sqrt(squares / kDraws - mean * mean), 0.2, 0.003);
}

TEST(Variation, ASeedSaysEverythingAboutARun) {
  const Variation variation{.slowdowns = {1, 1, 1, 1}, .jitter = 0.1, .seed = 7, .repetitions = 5};
  const std::vector<double> samples = samples_of("dear", variation);
  EXPECT_EQ(samples_of("dear", variation), samples);
  Variation other = variation;
  other.seed = 8;
  EXPECT_NE(samples_of("dear", other), samples);
  EXPECT_NE(samples[0], samples[1]);
  // Whoever waits for the slowest of several that vary waits longer than their mean.
  EXPECT_GT(estimate(samples).seconds, samples_of("dear", {})[0]);
}

// t = 4.303 for three samples: 1, 2, 3 have the mean 2 and the standard error 1 / sqrt(3).
TEST(Variation, ConfidenceIntervalsAreStudents) {
  const Estimate three = estimate({1, 2, 3});
  EXPECT_DOUBLE_EQ(three.seconds, 2);
  EXPECT_NEAR(three.half_width_seconds, 4.303 / std::sqrt(3), 1e-12);
  EXPECT_EQ(estimate({5}).half_width_seconds, 0);
  EXPECT_EQ(estimate(std::vector<double>(50, 4.0)).half_width_seconds, 0);
  EXPECT_THROW(estimate({}), ConfigError);
}

TEST(Variation, RefusesWhatIsNone) {
  EXPECT_THROW(samples_of("dear", {.jitter = -0.1}), ConfigError);
  EXPECT_THROW(samples_of("dear", {.jitter = std::nan("")}), ConfigError);
  EXPECT_THROW(samples_of("dear", {.repetitions = 0}), ConfigError);
  EXPECT_THROW(samples_of("dear", {.slowdowns = {}}), ConfigError);
}

}  // namespace
}  // namespace dear::sim::variation_test
