#include "bench/tuning/rivals.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/tune/courses_in_test.h"

namespace dear::bench::rivals_test {
namespace {

using namespace tune;  // NOLINT(google-build-using-namespace)
using tune::courses::bowl;
using tune::courses::Course;
using tune::courses::Function;
using tune::courses::grid;
using tune::courses::run;

TEST(Rivals, EachKeepsToItsTrialsAndFindsTheBestItTried) {
  const Candidates candidates = grid(1, 50);
  const Function function = bowl({0.3}, 1);
  for (const Method& method : rivals()) {
    for (const int trials : {1, 2, 5, 10}) {
      const auto tuner = method.make(candidates, {.trials = trials});
      EXPECT_EQ(tuner->best(), std::nullopt);
      const Course course = run(*tuner, candidates, function);
      EXPECT_LE(course.tried.size(), static_cast<std::size_t>(trials)) << method.name;
      EXPECT_GE(course.tried.size(), 1U) << method.name;
      for (const std::size_t tried : course.tried)
        EXPECT_LE(function(candidates[course.best]), function(candidates[tried]) * 1.002) << method.name;
    }
  }
}

TEST(Random, TriesAllOnceAndRepeatsItselfForOneSeed) {
  const Candidates candidates = grid(1, 12);
  const auto one = make_random(candidates, {.trials = 50, .seed = 4});
  const auto same = make_random(candidates, {.trials = 50, .seed = 4});
  const auto other = make_random(candidates, {.trials = 50, .seed = 5});
  const Course course = run(*one, candidates, bowl({0.5}, 1));
  EXPECT_EQ(std::set<std::size_t>(course.tried.begin(), course.tried.end()).size(), 12U);
  EXPECT_EQ(course.tried.size(), 12U);
  EXPECT_EQ(run(*same, candidates, bowl({0.5}, 1)).tried, course.tried);
  EXPECT_NE(run(*other, candidates, bowl({0.5}, 1)).tried, course.tried);
}

TEST(GoldenSection, NarrowsDownAnyValley) {
  const Candidates candidates = grid(1, 90);
  for (double valley = 0; valley <= 1; valley += 0.01) {
    const auto tuner = make_golden_section(candidates, {.trials = 30});
    const Course course = run(*tuner, candidates, bowl({valley}, 1));
    EXPECT_NEAR(candidates[course.best].position[0], valley, 0.02);
    EXPECT_LE(course.tried.size(), 13U);
  }
  EXPECT_THROW(make_golden_section(grid(2, 3), {}), ConfigError);
}

TEST(Reference, BeginsWithTwentyFiveMegabytesAndStaysInItsRange) {
  const Candidates candidates =
      candidates_on_grid({{.name = "bytes", .low = 65536, .high = 1e9}},
                         [](const std::vector<double>& values) { return std::to_string(values[0]); });
  const auto tuner = make_reference(candidates, {});
  const Course course = run(*tuner, candidates, [](const Candidate&) { return 0.3; }, 0.01);
  EXPECT_NEAR(candidates[course.tried.front()].values[0], 25e6, 1e6);
  EXPECT_EQ(course.tried.size(), 10U);
  for (const std::size_t tried : course.tried) {
    EXPECT_GE(candidates[tried].values[0], 0.95e6);
    EXPECT_LE(candidates[tried].values[0], 105e6);
  }
}

TEST(Rivals, Refusals) {
  const Candidates candidates = grid(1, 3);
  for (const Method& method : rivals()) {
    EXPECT_THROW(method.make({}, {}), ConfigError) << method.name;
    EXPECT_THROW(method.make(candidates, {.trials = 0}), ConfigError) << method.name;
    const auto tuner = method.make(candidates, {});
    EXPECT_THROW(tuner->observe(3, 1), ConfigError) << method.name;
    EXPECT_THROW(tuner->observe(0, 0), ConfigError) << method.name;
  }
}

}  // namespace
}  // namespace dear::bench::rivals_test
