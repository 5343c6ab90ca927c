#include "dear/methods/edge/projected_sums.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/methods/edge/draws.h"
#include "dear/methods/edge/edge_run.h"
#include "dear/methods/edge/groups_in_test.h"

namespace dear::methods::edge::projected_sums_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::refusal;

std::vector<double> sparse_vector(std::size_t size, std::size_t nonzero, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> places(size);
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), random);
  std::normal_distribution<double> normal;
  std::vector<double> values(size);
  for (std::size_t i = 0; i < nonzero; ++i) values[places[i]] = normal(random);
  return values;
}

double distance(const std::vector<double>& one, const std::vector<double>& other) {
  double sum = 0;
  for (std::size_t i = 0; i < one.size(); ++i) sum += (one[i] - other[i]) * (one[i] - other[i]);
  return sum;
}

double norm2(const std::vector<double>& values) {
  return distance(values, std::vector<double>(values.size()));
}

TEST(Projections, AreIndependentUnitColumnsOfTheSeed) {
  const Projection one(400, 0.5, 3), same(400, 0.5, 3), other(400, 0.5, 4);
  EXPECT_EQ(one.symbols(), 200);
  const std::vector<double> x = sparse_vector(400, 400, 1);
  EXPECT_EQ(one.apply(x), same.apply(x));
  EXPECT_NE(one.apply(x), other.apply(x));
  EXPECT_NEAR(norm2(one.apply(x)) / norm2(x), 1, 0.3);
  // <A x, y> = <x, A^T y>
  const std::vector<double> y = sparse_vector(200, 200, 2), ax = one.apply(x), aty = one.transpose(y);
  EXPECT_NEAR(std::inner_product(y.begin(), y.end(), ax.begin(), 0.0),
              std::inner_product(x.begin(), x.end(), aty.begin(), 0.0), 1e-9);
}

TEST(Projections, GiveSparseVectorsBack) {
  const Projection projection(1000, 0.5, 5);
  const std::vector<double> x = sparse_vector(1000, 60, 7);
  EXPECT_LT(distance(projection.recover(projection.apply(x)), x), 1e-8 * norm2(x));
  // Too many elements for so few symbols: nothing can.
  const std::vector<double> dense = sparse_vector(1000, 450, 8);
  EXPECT_GT(distance(projection.recover(projection.apply(dense)), dense), 0.05 * norm2(dense));
}

// State evolution (Donoho, Maleki and Montanari 2009) by its own integral: tau^2 = sigma^2 + MSE(tau) /
// delta.
TEST(Projections, ErrWithNoiseAsStateEvolutionSays) {
  constexpr double kDelta = 0.5, kShare = 0.06, kSigma = 0.05, kCut = 1.4;
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  double tau2 = 1, error = 0;
  for (int pass = 0; pass < 60; ++pass) {
    double sum = 0;
    constexpr int kDraws = 40'000;
    for (int i = 0; i < kDraws; ++i) {
      const double x = i < kShare * kDraws ? normal(random) : 0, tau = std::sqrt(tau2);
      const double seen = x + tau * normal(random);
      const double kept = std::copysign(std::max(std::abs(seen) - kCut * tau, 0.0), seen);
      sum += (kept - x) * (kept - x);
    }
    error = sum / kDraws;
    tau2 = kSigma * kSigma + error / kDelta;
  }
  double measured = 0;
  constexpr int kTrials = 10;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Projection projection(1000, kDelta, 100 + static_cast<std::uint64_t>(trial));
    const std::vector<double> x = sparse_vector(1000, 60, static_cast<std::uint32_t>(trial));
    std::vector<double> symbols = projection.apply(x);
    for (double& symbol : symbols) symbol += kSigma * normal(random);
    measured += distance(projection.recover(symbols, 60, kCut), x) / 1000 / kTrials;
  }
  EXPECT_NEAR(measured / error, 1, 0.25) << measured << " and " << error;
}

TEST(SumsOfProjections, AreMeansWeightedByAmplitudes) {
  const Projection projection(600, 0.6, 2);
  const std::vector<std::vector<double>> updates{sparse_vector(600, 20, 1), sparse_vector(600, 20, 2),
                                                 sparse_vector(600, 20, 3)};
  const OverTheAir loud{.threshold = 0.1, .snr = 1e9};
  codec::Draw noise = draws_of(1, Purpose::noise, 0);
  std::vector<double> out(600), expected(600);
  const Received received =
      sum_projected(loud, projection, updates, std::vector<double>{1, 0.05, 2}, noise, out);
  EXPECT_EQ(received.senders, 2);
  double amplitudes = 0;
  for (const std::size_t device : {0UL, 2UL}) {
    const double amplitude = 1 / std::sqrt(norm2(projection.apply(updates[device])) + 1);
    for (std::size_t i = 0; i < 600; ++i) expected[i] += amplitude * updates[device][i];
    amplitudes += amplitude;
  }
  for (double& one : expected) one /= amplitudes;
  EXPECT_LT(distance(out, expected), 1e-5 * norm2(expected));
}

TEST(SumsOfProjections, KeepThePowerAndDropWhatNoiseDrowns) {
  const Projection projection(100, 0.5, 2);
  const std::vector<std::vector<double>> updates(1, sparse_vector(100, 5, 1));
  std::vector<double> out(100);
  const OverTheAir settings{.threshold = 0.1, .snr = 10};
  // E1(g_th) is the mean of 1 / |h|^2 where that is above g_th, so the mean power is the SNR.
  std::mt19937 random(4);
  std::exponential_distribution<double> fading;
  double power = 0;
  constexpr int kRounds = 20'000;
  for (int round = 0; round < kRounds; ++round) {
    const double gain = fading(random);
    if (gain >= settings.threshold) power += received_power(settings) / gain / kRounds;
  }
  EXPECT_NEAR(power, settings.snr, 0.05 * settings.snr);
  codec::Draw noise = draws_of(1, Purpose::noise, 0);
  EXPECT_EQ(sum_projected(settings, projection, updates, std::vector<double>{0.01}, noise, out).senders, 0);
  EXPECT_THAT(out, Each(0.0));
  const OverTheAir whisper{.threshold = 0.1, .snr = 1e-4};
  EXPECT_EQ(sum_projected(whisper, projection, updates, std::vector<double>{1}, noise, out).senders, 1);
  EXPECT_THAT(out, Each(0.0));
}

TEST(SumsOfProjections, RefuseWhatCannotBe) {
  EXPECT_THAT(refusal([] { Projection(100, 0, 1); }), HasSubstr("share of 0"));
  EXPECT_THAT(refusal([] { Projection(100, 1.5, 1); }), HasSubstr("share of 1.5"));
  EXPECT_THAT(refusal([] { Projection(100, std::nan(""), 1); }), HasSubstr("share of nan"));
  EXPECT_THAT(refusal([] { Projection(10'000, 0.5, 1); }), HasSubstr("smaller model"));
}

// At few symbols and low power projections learn more than whole updates of as many channel uses do.
TEST(EdgeRun, OfProjectionsLearnsWithHalfTheChannelUses) {
  const Classification task({.devices = 10, .samples = 40, .classes = 4, .features = 30, .separation = 0.6});
  EdgeSettings settings{.scheduler = "round-robin", .cohort = 10, .quantiser = {.ratio = 0.1}, .rounds = 60};
  settings.air = {.threshold = 0.1, .snr = 100};
  settings.aggregator = "over-the-air";
  const EdgeRound whole = run_edge(settings, task).back();
  settings.aggregator = "a-dsgd";
  const EdgeRound projected = run_edge(settings, task).back();
  EXPECT_LT(projected.channel_uses, 0.55 * whole.channel_uses);
  EXPECT_EQ(projected.bits_up, 0);
  EXPECT_LT(projected.seconds, whole.seconds);
  EXPECT_GT(projected.accuracy, whole.accuracy - 0.05);
  EXPECT_LT(projected.loss, 0.5 * task.loss(task.start()));
}

// The server's steps with momentum, by the equations of torch.optim.SGD(nesterov=True).
TEST(EdgeRun, OfDilocoStepsWithNesterovsMomentum) {
  const Classification task({.devices = 4, .samples = 20, .classes = 3, .features = 5, .separation = 1});
  EdgeSettings settings{.scheduler = "round-robin", .cohort = 4, .local_steps = 1, .batch = 0, .rounds = 8};
  settings.aggregator = "diloco";
  settings.outer_step_size = 0.5;
  const std::vector<EdgeRound> rounds = run_edge(settings, task);
  std::vector<double> point = task.start(), one(point.size()), buffer(point.size());
  codec::Draw draw = draws_of(1, Purpose::samples, 0);
  for (const EdgeRound& round : rounds) {
    EXPECT_NEAR(round.loss, task.loss(point), 1e-12) << "round " << round.number;
    std::vector<double> gradient(point.size());
    for (int device = 0; device < 4; ++device) {
      task.gradient(device, point, 0, draw, one);
      for (std::size_t i = 0; i < point.size(); ++i) gradient[i] += settings.step_size * one[i] / 4;
    }
    for (std::size_t i = 0; i < point.size(); ++i) {
      buffer[i] = 0.9 * buffer[i] + gradient[i];
      point[i] -= 0.5 * (gradient[i] + 0.9 * buffer[i]);
    }
  }
  settings.outer_step_size = 1;
  settings.outer_momentum = 0;
  const double plain = run_edge(settings, task).back().loss;
  settings.aggregator = "mean";
  EXPECT_DOUBLE_EQ(plain, run_edge(settings, task).back().loss);
  settings.aggregator = "diloco";
  settings.outer_momentum = 1;
  EXPECT_THAT(refusal([&] { run_edge(settings, task); }), HasSubstr("momentum 1"));
}

}  // namespace
}  // namespace dear::methods::edge::projected_sums_test
