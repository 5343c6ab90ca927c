#include "dear/predict/tune/gaussian_process.h"

#include <cmath>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/tune/draws.h"
#include "dear/predict/tune/expected_improvement.h"

namespace dear::tune::gaussian_process_test {
namespace {

constexpr double kClose = 1e-9;  // what the jitter may move

TEST(Matern, AsInTheBook) {
  EXPECT_EQ(matern_5_2(0), 1);
  EXPECT_NEAR(matern_5_2(1), (1 + std::sqrt(5.0) + 5.0 / 3) * std::exp(-std::sqrt(5.0)), 1e-15);
  EXPECT_NEAR(matern_5_2(1), 0.5239941088318203, 1e-12);
  EXPECT_LT(matern_5_2(10), 1e-7);
}

// k = signal^2 = 4, noise^2 = 1: mean 4 / 5 of the value, variance 4 - 16 / 5.
TEST(GaussianProcess, OnePlaceByHand) {
  const GaussianProcess process({{.position = {0.5}, .expected = 10}}, {15},
                                {.lengths = {0.25}, .signal = 2, .noise = 1});
  const Belief here = process.at({.position = {0.5}, .expected = 10});
  EXPECT_NEAR(here.mean, 10 + 5 * 0.8, kClose);
  EXPECT_NEAR(here.deviation, std::sqrt(0.8), kClose);
  // One length away the covariance is 4 m.
  const double m = matern_5_2(1);
  const Belief there = process.at({.position = {0.75}, .expected = 1});
  EXPECT_NEAR(there.mean, 1 + 4 * m / 5 * 5, kClose);
  EXPECT_NEAR(there.deviation, std::sqrt(4 - 16 * m * m / 5), kClose);
  EXPECT_NEAR(process.log_likelihood(), -25.0 / 10 - std::log(5.0) / 2 - std::log(2 * M_PI) / 2, kClose);
}

TEST(GaussianProcess, TwoPlacesByHand) {
  const double m = matern_5_2(0.5 / 0.4);
  const Kernel kernel{.lengths = {0.4}, .signal = 1, .noise = 0.5};
  const GaussianProcess process({{.position = {0}}, {.position = {0.5}}}, {1, -2}, kernel);
  // The inverse of (1.25 m; m 1.25), by hand.
  const double determinant = 1.25 * 1.25 - m * m;
  const double first = (1.25 * 1 - m * -2) / determinant;
  const double second = (1.25 * -2 - m * 1) / determinant;
  const double k0 = matern_5_2(0.1 / 0.4);
  const double k1 = matern_5_2(0.4 / 0.4);
  const Belief belief = process.at({.position = {0.1}});
  EXPECT_NEAR(belief.mean, k0 * first + k1 * second, kClose);
  const double explained = (1.25 * k0 * k0 - 2 * m * k0 * k1 + 1.25 * k1 * k1) / determinant;
  EXPECT_NEAR(belief.deviation, std::sqrt(1 - explained), kClose);
  EXPECT_NEAR(process.log_likelihood(),
              -(first - 2 * second) / 2 - std::log(determinant) / 2 - std::log(2 * M_PI), kClose);
}

TEST(GaussianProcess, NothingObservedIsWhatWasExpected) {
  const GaussianProcess process({}, {}, {.lengths = {1}, .signal = 3, .offset = 4});
  const Belief belief = process.at({.position = {0.2}, .expected = 7});
  EXPECT_EQ(belief.mean, 7);
  EXPECT_DOUBLE_EQ(belief.deviation, 5);
  EXPECT_EQ(process.log_likelihood(), 0);
}

TEST(GaussianProcess, OnePlaceTwiceWithoutNoise) {
  const GaussianProcess process({{.position = {0.5}}, {.position = {0.5}}}, {1, 1}, {.lengths = {1}});
  EXPECT_NEAR(process.at({.position = {0.5}}).mean, 1, 1e-6);
  EXPECT_NEAR(process.at({.position = {0.5}}).deviation, 0, 1e-4);
  EXPECT_THROW(GaussianProcess({{.position = {0.5}}}, {NAN}, {.lengths = {1}}), ConfigError);
}

// Observed 3 above what was expected everywhere: with an offset all is believed to be 3 more.
TEST(GaussianProcess, OffsetAndSlopeCorrectWhatWasExpected) {
  std::vector<Point> points;
  std::vector<double> shifted;
  std::vector<double> exaggerated;
  for (int i = 0; i <= 4; ++i) {
    const double x = i / 10.0;  // on one side only
    points.push_back({.position = {x}, .expected = std::sin(5 * x)});
    shifted.push_back(std::sin(5 * x) + 3);
    exaggerated.push_back(2 * std::sin(5 * x));
  }
  const Point far{.position = {1}, .expected = std::sin(5.0)};
  const Kernel offset{.lengths = {0.1}, .signal = 0.01, .noise = 0.01, .offset = 10};
  EXPECT_NEAR(GaussianProcess(points, shifted, offset).at(far).mean, std::sin(5.0) + 3, 0.02);
  const Kernel slope{.lengths = {0.1}, .signal = 0.01, .noise = 0.01, .slope = 10};
  EXPECT_NEAR(GaussianProcess(points, exaggerated, slope).at(far).mean, 2 * std::sin(5.0), 0.05);
}

struct Sample {
  std::vector<Point> points;
  std::vector<double> values;
};

Sample sample(std::uint64_t seed, std::size_t count, std::size_t dimensions) {
  Draws draws(seed);
  Sample result;
  for (std::size_t i = 0; i < count; ++i) {
    Point point{.position = {}, .expected = draws.unit()};
    for (std::size_t d = 0; d < dimensions; ++d) point.position.push_back(draws.unit());
    result.points.push_back(point);
    result.values.push_back(draws.normal());
  }
  return result;
}

TEST(GaussianProcess, TheGradientIsThatOfTheLikelihood) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Sample random = sample(seed, 7, 2);
    Draws draws(seed);
    const Kernel kernel{.lengths = {0.2 + draws.unit(), 0.2 + draws.unit()},
                        .signal = 0.5 + draws.unit(),
                        .noise = 0.1 + draws.unit(),
                        .offset = 0.7,
                        .slope = 0.3};
    const std::vector<double> gradient = GaussianProcess(random.points, random.values, kernel).gradient();
    ASSERT_EQ(gradient.size(), 4U);
    const auto likelihood = [&](std::size_t which, double by) {
      Kernel moved = kernel;
      double& number = which < 2 ? moved.lengths[which] : which == 2 ? moved.signal : moved.noise;
      number *= std::exp(by);
      return GaussianProcess(random.points, random.values, moved).log_likelihood();
    };
    for (std::size_t i = 0; i < gradient.size(); ++i)
      EXPECT_NEAR(gradient[i], (likelihood(i, 1e-5) - likelihood(i, -1e-5)) / 2e-5, 1e-6) << seed;
  }
}

// Deviations shrink where more is known, wherever that is.
TEST(GaussianProcess, MoreObservationsNeverKnowLess) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    auto [points, values] = sample(seed, 8, 1 + seed % 3);
    const Kernel kernel{.lengths = std::vector<double>(1 + seed % 3, 0.3), .noise = 0.1, .offset = 1};
    const auto [probes, unused] = sample(seed + 1000, 5, 1 + seed % 3);
    const GaussianProcess all(points, values, kernel);
    points.pop_back();
    values.pop_back();
    const GaussianProcess fewer(points, values, kernel);
    for (const Point& probe : probes)
      EXPECT_LE(all.at(probe).deviation, fewer.at(probe).deviation + kClose) << seed;
  }
}

TEST(FitKernel, FindsTheNoiseThatRepeatsShow) {
  Draws draws(5);
  for (const double noise : {0.005, 0.02, 0.08}) {
    std::vector<Point> points;
    std::vector<double> values;
    for (int i = 0; i < 30; ++i) {
      const double x = (i % 6) / 5.0;
      points.push_back({.position = {x}});
      values.push_back(0.3 * (x - 0.4) * (x - 0.4) + noise * draws.normal());
    }
    const Kernel kernel = fit_kernel(points, values);
    EXPECT_GT(kernel.noise, 0.7 * noise);
    EXPECT_LT(kernel.noise, 1.4 * noise);
  }
}

TEST(FitKernel, ADimensionThatDoesNotMatterIsLong) {
  Draws draws(6);
  std::vector<Point> points;
  std::vector<double> values;
  for (int i = 0; i < 25; ++i) {
    points.push_back({.position = {draws.unit(), draws.unit()}});
    values.push_back(std::sin(6 * points.back().position[0]) / 4);
  }
  const Kernel kernel = fit_kernel(points, values);
  EXPECT_GT(kernel.lengths[1], 3 * kernel.lengths[0]);
}

// No neighbour is better: it is a maximum of likelihood times prior.
TEST(FitKernel, IsAMaximum) {
  const FitOptions options{.steps = 200};
  const auto height = [&](const Sample& of, const Kernel& kernel) {
    const auto away = [](double number, double centre) { return std::pow(std::log(number / centre), 2) / 2; };
    return GaussianProcess(of.points, of.values, kernel).log_likelihood() -
           away(kernel.lengths[0], options.length) - away(kernel.signal, options.signal) -
           away(kernel.noise, options.noise);
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Sample random = sample(seed, 6, 1);
    const Kernel kernel = fit_kernel(random.points, random.values, options);
    for (const double factor : {0.9, 0.97, 1.03, 1.1, 3.0, 0.3}) {
      Kernel other = kernel;
      other.lengths[0] *= factor;
      EXPECT_LE(height(random, other), height(random, kernel) + 1e-6) << seed;
      other = kernel;
      other.signal *= factor;
      EXPECT_LE(height(random, other), height(random, kernel) + 1e-6) << seed;
      other = kernel;
      other.noise *= factor;
      EXPECT_LE(height(random, other), height(random, kernel) + 1e-6) << seed;
    }
  }
  EXPECT_EQ(fit_kernel({}, {}).signal, FitOptions{}.signal);
}

TEST(ExpectedImprovement, ClosedForm) {
  EXPECT_EQ(expected_improvement({.mean = 3, .deviation = 0}, 5, 0.5), 1.5);
  EXPECT_EQ(expected_improvement({.mean = 6, .deviation = 0}, 5, 0), 0);
  // At z = 0 it is the deviation times the density at 0; at z = 1 it is known from tables.
  EXPECT_NEAR(expected_improvement({.mean = 5, .deviation = 2}, 5, 0), 2 * 0.3989422804014327, 1e-12);
  EXPECT_NEAR(expected_improvement({.mean = 4, .deviation = 1}, 5, 0),
              0.8413447460685429 + 0.2419707245191434, 1e-12);
  EXPECT_NEAR(expected_improvement({.mean = 5, .deviation = 1}, 5, 1),
              0.2419707245191434 - 0.1586552539314571, 1e-12);
  EXPECT_LT(expected_improvement({.mean = 50, .deviation = 1}, 5, 0), 1e-12);
}

// It is the same as the mean of what is below, drawn.
TEST(ExpectedImprovement, IsTheMeanOfDraws) {
  Draws draws(3);
  const Belief belief{.mean = 1, .deviation = 0.3};
  double sum = 0;
  constexpr int kDraws = 200'000;
  for (int i = 0; i < kDraws; ++i)
    sum += std::max(0.0, 0.9 - 0.05 - (belief.mean + belief.deviation * draws.normal()));
  EXPECT_NEAR(sum / kDraws, expected_improvement(belief, 0.9, 0.05), 2e-3);
}

}  // namespace
}  // namespace dear::tune::gaussian_process_test
