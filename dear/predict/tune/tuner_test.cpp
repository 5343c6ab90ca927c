#include "dear/predict/tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/predict/tune/courses_in_test.h"
#include "dear/predict/tune/draws.h"

namespace dear::tune::tuner_test {
namespace {

using ::testing::HasSubstr;

using courses::bowl;
using courses::Course;
using courses::Function;
using courses::grid;
using courses::run;

TEST(Tuner, EveryMethodKeepsToItsTrialsAndFindsTheBestItTried) {
  const Candidates candidates = grid(1, 50);
  const Function function = bowl({0.3}, 1);
  for (const Method& method : methods()) {
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

TEST(Bayesian, BowlsWithNoiseInOneToThreeDimensions) {
  for (std::size_t dimensions = 1; dimensions <= 3; ++dimensions) {
    const Candidates candidates = grid(dimensions, dimensions == 1 ? 60 : dimensions == 2 ? 12 : 6);
    int near = 0;
    for (std::uint64_t seed = 1; seed <= testing::rounds(20U); ++seed) {
      Draws draws(seed);
      std::vector<double> valley;
      for (std::size_t d = 0; d < dimensions; ++d) valley.push_back(draws.unit());
      const Function function = bowl(valley, 1.5);
      const auto tuner =
          find_method("bayesian").make(candidates, {.trials = 10 * static_cast<int>(dimensions)});
      const Course course = run(*tuner, candidates, function, 0.01, seed);
      double least = 1e300;
      for (const Candidate& candidate : candidates) least = std::min(least, function(candidate));
      near += function(candidates[course.best]) <= 1.03 * least ? 1 : 0;
    }
    EXPECT_GE(near, testing::rounds(18)) << dimensions;
  }
}

TEST(Bayesian, BeginsInTheCentreOrWhereThePriorIsLeast) {
  const Candidates candidates = grid(2, 11);
  EXPECT_EQ(find_method("bayesian").make(candidates, {})->suggest(), 5 * 11 + 5);
  std::vector<double> prior(candidates.size(), 2.0);
  prior[17] = 1;
  EXPECT_EQ(find_method("bayesian").make(candidates, {.prior = {.seconds = prior}})->suggest(), 17U);
}

// A prior that is ten times too low and exaggerates is still worth something.
TEST(Bayesian, APriorThatIsWrongByAFactorHelps) {
  const Candidates candidates = grid(1, 60);
  const Function truth = bowl({0.77}, 2);
  std::vector<double> prior;
  for (const Candidate& candidate : candidates) prior.push_back(0.1 * std::pow(truth(candidate), 1.4));
  const auto tuner = find_method("bayesian").make(candidates, {.prior = {.seconds = prior}});
  const Course course = run(*tuner, candidates, truth, 0.005);
  EXPECT_LE(course.tried.size(), 4U);
  EXPECT_LE(truth(candidates[course.best]), 1.001 * truth(candidates[course.tried.front()]));
  // Two others show by how much it exaggerates.
  tuner->observe(0, truth(candidates[0]));
  tuner->observe(20, truth(candidates[20]));
  const std::vector<Expectation> expectations = tuner->expectations();
  for (std::size_t i = 0; i < candidates.size(); ++i)
    EXPECT_NEAR(expectations[i].seconds / truth(candidates[i]), 1, 0.15);
}

TEST(Bayesian, MeasurementsOverruleAWrongPrior) {
  const Candidates candidates = grid(1, 40);
  const Function truth = bowl({0.2}, 2);
  const Function believed = bowl({0.9}, 2);
  std::vector<double> prior;
  for (const Candidate& candidate : candidates) prior.push_back(believed(candidate));
  const auto tuner = find_method("bayesian").make(candidates, {.trials = 20, .prior = {.seconds = prior}});
  const Course course = run(*tuner, candidates, truth, 0.005);
  EXPECT_LE(truth(candidates[course.best]), 1.05 * 0.2);
}

TEST(Bayesian, MeasuresItsBestTwiceAndStopsWhereAllIsTheSame) {
  const Candidates candidates = grid(1, 60);
  const auto tuner = find_method("bayesian").make(candidates, {.trials = 60});
  const Course course = run(*tuner, candidates, [](const Candidate&) { return 0.1; }, 0.001);
  EXPECT_LE(course.tried.size(), 20U);
  EXPECT_GE(std::count(course.tried.begin(), course.tried.end(), course.best), 2);
}

TEST(Bayesian, DeviationsAreSmallWhereItMeasured) {
  const Candidates candidates = grid(1, 60);
  const auto tuner = find_method("bayesian").make(candidates, {});
  tuner->observe(10, 0.2);
  tuner->observe(12, 0.21);
  const std::vector<Expectation> all = tuner->expectations();
  EXPECT_LT(all[11].deviation, all[50].deviation);
  EXPECT_NEAR(all[11].seconds, 0.205, 0.005);
  EXPECT_LT(all[11].low_seconds(), all[11].seconds);
  EXPECT_GT(all[11].high_seconds(), all[11].seconds);
}

TEST(Grid, EvenStepsInEveryDimension) {
  const Candidates line = grid(1, 101);
  const auto four = find_method("grid").make(line, {.trials = 4});
  std::vector<double> places;
  for (const std::size_t i : run(*four, line, bowl({0}, 1)).tried) places.push_back(line[i].position[0]);
  EXPECT_THAT(places, ::testing::Pointwise(::testing::DoubleNear(0.011), {0.125, 0.375, 0.625, 0.875}));
  const Candidates square = grid(2, 11);
  const auto nine = find_method("grid").make(square, {.trials = 9});
  const Course course = run(*nine, square, bowl({0, 0}, 1));
  EXPECT_EQ(std::set<std::size_t>(course.tried.begin(), course.tried.end()).size(), 9U);
}

TEST(Tuner, Refusals) {
  const Candidates candidates = grid(1, 3);
  for (const Method& method : methods()) {
    EXPECT_THROW(method.make({}, {}), ConfigError) << method.name;
    EXPECT_THROW(method.make(candidates, {.trials = 0}), ConfigError) << method.name;
    EXPECT_THROW(method.make(candidates, {.prior = {.seconds = {1, 2}}}), ConfigError) << method.name;
    EXPECT_THROW(method.make(candidates, {.prior = {.seconds = {1, 2, 0}}}), ConfigError) << method.name;
    const auto tuner = method.make(candidates, {});
    EXPECT_THROW(tuner->observe(3, 1), ConfigError) << method.name;
    EXPECT_THROW(tuner->observe(0, 0), ConfigError) << method.name;
    EXPECT_THROW(tuner->observe(0, NAN), ConfigError) << method.name;
  }
  try {
    find_method("guessing");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bayesian"));
  }
}

}  // namespace
}  // namespace dear::tune::tuner_test
