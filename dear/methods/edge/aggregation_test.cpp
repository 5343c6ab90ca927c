// What arrives of updates: schedulers, quantisers, sums over the air, gossip.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/methods/edge/aggregators.h"
#include "dear/methods/edge/draws.h"
#include "dear/methods/edge/gossip.h"
#include "dear/methods/edge/groups_in_test.h"
#include "dear/methods/edge/over_the_air.h"
#include "dear/methods/edge/quantisers.h"
#include "dear/methods/edge/schedulers.h"

namespace dear::methods::edge::aggregation_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;

std::vector<double> random_vector(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(size);
  for (double& value : values) value = normal(random);
  return values;
}

double squares(const std::vector<double>& values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
}

Candidates four() {
  return {.round = 0,
          .count = 2,
          .seed = 1,
          .channels_hz = {4, 3, 2, 1},
          .rates = {4, 3, 2, 1},
          .mean_rates = {8, 3, 1, 4},
          .ages = {0, 5, 2, 9},
          .end_seconds = {3, 1, 4, 2},
          .norms = {1, 2, 9, 3},
          .norms_that_fit = {7, 1, 2, 6}};
}

TEST(Schedulers, TakeWhatTheirNamesSay) {
  const auto chosen = [](const char* name) { return choose_devices(find_scheduler(name), four()); };
  EXPECT_THAT(chosen("best-channel"), ElementsAre(0, 1));
  EXPECT_THAT(chosen("bn2"), ElementsAre(2, 3));
  EXPECT_THAT(chosen("bn2-c"), ElementsAre(0, 3));
  EXPECT_THAT(chosen("proportional-fair"), ElementsAre(1, 2));
  EXPECT_THAT(chosen("age-based"), ElementsAre(1, 3));
  EXPECT_THAT(chosen("fastest-k"), ElementsAre(1, 3));
  EXPECT_THAT(chosen("round-robin"), ElementsAre(0, 1));
  Candidates one = four();
  one.count = 1;
  EXPECT_THAT(choose_devices(find_scheduler("bc-bn2"), one), ElementsAre(1)) << "of 0 and 1";
}

TEST(Schedulers, HaveTheAgesOfTheirClosedForms) {
  constexpr int kDevices = 18, kChosen = 2, kRounds = 20'000;
  for (const char* name : {"random", "round-robin", "age-based"}) {
    Candidates candidates{.count = kChosen, .channels_hz = std::vector<double>(kDevices, 1.0)};
    candidates.ages.resize(kDevices);
    double sum = 0;
    for (int round = 0; round < kRounds; ++round) {
      candidates.round = round;
      grow_ages(candidates.ages, choose_devices(find_scheduler(name), candidates));
      if (round >= 200)
        sum += std::accumulate(candidates.ages.begin(), candidates.ages.end(), 0.0) / kDevices;
    }
    const double age = sum / (kRounds - 200);
    if (std::string_view(name) == "random")
      EXPECT_NEAR(age, (18.0 - 2) / 2, 0.1);
    else
      EXPECT_DOUBLE_EQ(age, (18.0 / 2 - 1) / 2) << name;
  }
  EXPECT_EQ(mean_age_of_random(18, 2), 8);
  EXPECT_EQ(mean_age_of_round_robin(18, 2), 4);
}

TEST(Schedulers, DrawEveryDeviceEquallyOften) {
  Candidates candidates{.count = 3, .channels_hz = std::vector<double>(10, 1.0)};
  std::vector<double> counts(10);
  constexpr int kRounds = 10'000;
  for (candidates.round = 0; candidates.round < kRounds; ++candidates.round)
    for (const int device : choose_devices(find_scheduler("random"), candidates))
      ++counts[static_cast<std::size_t>(device)];
  double chi = 0;
  for (const double count : counts) chi += std::pow(count - 3000, 2) / (3000 * 0.7);
  EXPECT_LT(chi, 30) << "chi-square with 9 degrees of freedom";
}

TEST(Schedulers, RefuseWhatCannotBe) {
  Candidates candidates = four();
  candidates.count = 5;
  EXPECT_THAT(refusal([&] { choose_devices(find_scheduler("random"), candidates); }),
              HasSubstr("5 of 4 devices"));
  candidates.count = 0;
  EXPECT_THAT(refusal([&] { choose_devices(find_scheduler("random"), candidates); }),
              HasSubstr("0 of 4 devices"));
  EXPECT_THAT(refusal([] { find_scheduler("bn3"); }), HasSubstr("did you mean bn2"));
  candidates = four();
  candidates.norms[1] = NAN;
  EXPECT_THROW(choose_devices(find_scheduler("bn2"), candidates), Error);
  std::vector<std::int64_t> ages{std::numeric_limits<std::int64_t>::max(), 3};
  grow_ages(ages, {1});
  EXPECT_THAT(ages, ElementsAre(std::numeric_limits<std::int64_t>::max(), 0)) << "it does not overflow";
}

TEST(Quantisers, AreUnbiasedWithinTheirVariance) {
  constexpr int kTrials = 4000;
  const QuantiserOptions options{.levels = 4};
  const std::vector<double> values = random_vector(50, 3);
  for (const char* name : {"qsgd", "ternary"}) {
    const Quantiser& quantiser = find_quantiser(name, options);
    std::vector<double> mean(values.size()), out(values.size());
    double error = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      codec::Draw draw = draws_of(1, Purpose::quantiser, trial, 0);
      quantise(quantiser, values, options, draw, out);
      for (std::size_t i = 0; i < out.size(); ++i) {
        mean[i] += out[i] / kTrials;
        error += std::pow(out[i] - values[i], 2) / kTrials;
      }
    }
    // The variance of an element: of levels a step apart, or of nothing and the largest.
    const double norm = std::sqrt(squares(values));
    double largest = 0;
    for (const double value : values) largest = std::max(largest, std::abs(value));
    double variance = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double step = std::string_view(name) == "qsgd" ? norm / 4 : largest;
      const double above = std::fmod(std::abs(values[i]), step) / step;
      const double own =
          std::abs(values[i]) == largest && step == largest ? 0 : above * (1 - above) * step * step;
      variance += own;
      EXPECT_NEAR(mean[i], values[i], 5 * std::sqrt(own / kTrials) + 1e-12) << name;
    }
    EXPECT_NEAR(error, variance, 0.05 * variance) << name;
    if (std::string_view(name) == "qsgd") {
      EXPECT_LE(error, std::min(50.0 / 16, std::sqrt(50.0) / 4) * squares(values));
    }
  }
  EXPECT_DOUBLE_EQ(qsgd_variance_bound(1000, 4), std::sqrt(1000.0) / 4);
}

TEST(Quantisers, CountTheirBits) {
  const QuantiserOptions options{.levels = 4, .ratio = 0.1};
  const auto bits = [&](const char* name) { return find_quantiser(name, options).bits(1000, options); };
  EXPECT_EQ(bits("fp32"), 32'000);
  EXPECT_EQ(bits("qsgd"), 32 + 1000 * (1 + 3)) << "a sign and one of 5 levels";
  EXPECT_EQ(bits("ternary"), 32 + 2000);
  EXPECT_EQ(bits("sign"), 32 + 1000);
  EXPECT_EQ(bits("top-k"), 100 * 64);
}

TEST(Quantisers, KeepZerosAndRefuseTheRest) {
  for (const Quantiser& quantiser : quantisers()) {
    codec::Draw draw = draws_of(1, Purpose::quantiser, 0, 0);
    std::vector<double> out(8, 7.0);
    quantise(quantiser, std::vector<double>(8), {}, draw, out);
    EXPECT_THAT(out, ::testing::Each(0.0)) << quantiser.name;
    EXPECT_THROW(quantise(quantiser, std::vector<double>{1, NAN, 2, 3, 4, 5, 6, 7}, {}, draw, out), Error);
  }
  EXPECT_THAT(refusal([] { find_quantiser("qsgd", {.levels = 0}); }), HasSubstr("0 levels"));
  EXPECT_THAT(refusal([] { find_quantiser("top-k", {.ratio = 0}); }), HasSubstr("a ratio of 0"));
  EXPECT_THAT(refusal([] { find_quantiser("qsdg", {}); }), HasSubstr("did you mean qsgd"));
}

TEST(Quantisers, LoseNothingWithAMemory) {
  const QuantiserOptions options{.ratio = 0.1};
  const Quantiser& quantiser = find_quantiser("top-k", options);
  ErrorMemory memory;
  std::vector<double> sum(40), sent_sum(40), sent(40);
  for (std::uint32_t step = 0; step < 30; ++step) {
    std::vector<double> update = random_vector(40, step);
    for (std::size_t i = 0; i < 40; ++i) sum[i] += update[i];
    memory.add_to(update);
    codec::Draw draw = draws_of(1, Purpose::quantiser, 0, 0);
    quantise(quantiser, update, options, draw, sent);
    EXPECT_EQ(std::count_if(sent.begin(), sent.end(), [](double v) { return v != 0; }), 4);
    memory.keep(update, sent);
    for (std::size_t i = 0; i < 40; ++i) sent_sum[i] += sent[i];
  }
  for (std::size_t i = 0; i < 40; ++i) EXPECT_NEAR(sent_sum[i] + memory.kept()[i], sum[i], 1e-5);
}

TEST(OverTheAir, HasTheClosedForms) {
  // E1 by its integral, with t = x + tan^2.
  for (const double x : {0.01, 0.1, 1.0, 3.0}) {
    double integral = 0;
    constexpr int kSteps = 200'000;
    for (int step = 0; step < kSteps; ++step) {
      const double u = (step + 0.5) / kSteps, t = x / u;
      integral += std::exp(-t) / u / kSteps;
    }
    EXPECT_NEAR(exponential_integral(x), integral, 1e-6);
  }
  constexpr int kDevices = 10, kTrials = 20'000;
  const OverTheAir air{.threshold = 0.2, .snr = 20};
  std::vector<std::vector<double>> updates(kDevices, std::vector<double>(1));
  std::vector<double> elements;
  for (int device = 0; device < kDevices; ++device)
    elements.push_back(updates[static_cast<std::size_t>(device)][0] = device % 2 == 0 ? 1 : -0.5);
  const double truth = std::accumulate(elements.begin(), elements.end(), 0.0) / kDevices;
  double mean = 0, error = 0, truncated = 0, power = 0;
  std::vector<double> out(1);
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> fading;
    codec::Draw gains = draws_of(3, Purpose::fading, trial, 0);
    for (int device = 0; device < kDevices; ++device) fading.push_back(exponential(gains));
    codec::Draw noise = draws_of(3, Purpose::noise, trial);
    const Received received = sum_over_the_air(air, updates, fading, 1, noise, out);
    mean += out[0] / kTrials;
    error += std::pow(out[0] - truth, 2) / kTrials;
    truncated += static_cast<double>(kDevices - received.senders) / kDevices / kTrials;
    power += received.power * received.senders / kDevices / kTrials;
  }
  const double q = std::exp(-0.2), rho = 20 / exponential_integral(0.2), sum = squares(elements);
  const double expected = (sum * (1 - q) / q + 1 / (rho * q * q)) / kDevices / kDevices;
  EXPECT_NEAR(mean, truth, 5 * std::sqrt(expected / kTrials)) << "unbiased";
  EXPECT_NEAR(error, expected, 0.05 * expected);
  EXPECT_NEAR(mean_squared_error(air, elements, 1), expected, 1e-12);
  EXPECT_NEAR(truncated, 1 - q, 0.01);
  EXPECT_NEAR(truncated_share(0.2), 1 - q, 1e-12);
  EXPECT_NEAR(power, 20 * sum / kDevices, 0.02 * 20) << "rho E1(g_th), for symbols of that mean square";
}

TEST(OverTheAir, OfNobodyIsNothing) {
  codec::Draw noise = draws_of(1, Purpose::noise, 0);
  std::vector<double> out{5};
  EXPECT_EQ(sum_over_the_air({}, {{1.0}, {2.0}}, std::vector<double>{0.01, 0.02}, 2, noise, out).senders, 0);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(sum_over_the_air({}, {{0.0}}, std::vector<double>{1.0}, 0, noise, out).senders, 1);
  EXPECT_EQ(out[0], 0) << "zeros without a scale";
}

TEST(OverTheAir, ThatCannotBeIsRefused) {
  EXPECT_THAT(refusal([] { check(OverTheAir{.threshold = 0}); }), HasSubstr("infinite power"));
  EXPECT_THAT(refusal([] { check(OverTheAir{.threshold = 60}); }), HasSubstr("truncates every device"));
  EXPECT_THAT(refusal([] { check(OverTheAir{.snr = 0}); }), HasSubstr("0 times the noise"));
}

// Gradient descent on |x - x*|^2 mu / 2 by 8 devices. With a scale that is fixed the error stays where noise
// of variance v a step leaves it, d eta^2 v / (1 - (1 - eta mu)^2); with one that follows the updates it goes
// on.
TEST(OverTheAir, ThatFollowsTheUpdatesGoesToTheOptimum) {
  constexpr std::size_t kDevices = 8, kElements = 10;
  constexpr double kMu = 1, kEta = 0.1;
  const OverTheAir air{.threshold = 1e-9, .snr = 100};
  std::vector<double> last;
  for (const bool follows : {false, true}) {
    std::vector<double> x(kElements, 1.0), out(kElements);
    double scale = 0, sum = 0;
    for (int round = 0; round < 3000; ++round) {
      std::vector<std::vector<double>> updates(kDevices, std::vector<double>(kElements));
      for (std::vector<double>& update : updates)
        for (std::size_t i = 0; i < kElements; ++i) update[i] = -kEta * kMu * x[i];
      if (follows || round == 0) scale = largest_scale(updates);
      codec::Draw noise = draws_of(5, Purpose::noise, round);
      sum_over_the_air(air, updates, std::vector<double>(kDevices, 1.0), scale, noise, out);
      for (std::size_t i = 0; i < kElements; ++i) x[i] += out[i];
      if (round >= 1000) sum += squares(x) / 2000;
    }
    last.push_back(sum);
    if (!follows) {
      const double variance = scale * scale / (received_power(air) * kDevices * kDevices);
      EXPECT_NEAR(sum, kElements * variance / (1 - std::pow(1 - kEta * kMu, 2)), 0.1 * sum);
    }
  }
  EXPECT_LT(last[1], 1e-20);
}

TEST(Gossip, ContractsByTheSecondEigenvalue) {
  for (const int devices : {3, 8, 15}) {
    const Weights weights = metropolis(make_graph("ring", devices, 0, 1));
    check_doubly_stochastic(weights);
    EXPECT_NEAR(contraction(weights), std::abs(1.0 / 3 + 2.0 / 3 * std::cos(2 * std::numbers::pi / devices)),
                1e-9);
  }
  EXPECT_NEAR(contraction(metropolis(make_graph("ring", 8, 0, 1))), 0.804738, 1e-6);
  EXPECT_NEAR(contraction(metropolis(make_graph("complete", 6, 0, 1))), 0, 1e-7);
}

TEST(Gossip, PreservesTheMeanAndNeverContractsLess) {
  for (const GraphKind& kind : graph_kinds()) {
    const Weights weights = metropolis(make_graph(kind.name, 12, 0.6, 3));
    const double rho = contraction(weights);
    std::vector<std::vector<double>> models;
    for (std::uint32_t device = 0; device < 12; ++device) models.push_back(random_vector(5, device));
    std::vector<double> mean(5);
    for (const auto& model : models)
      for (std::size_t i = 0; i < 5; ++i) mean[i] += model[i] / 12;
    double before = disagreement(models);
    for (int step = 0; step < 20; ++step) {
      mix(weights, models);
      const double after = disagreement(models);
      EXPECT_LE(after, rho * rho * before * (1 + 1e-9) + 1e-25) << kind.name;
      before = after;
    }
    for (std::size_t i = 0; i < 5; ++i) {
      double now = 0;
      for (const auto& model : models) now += model[i] / 12;
      EXPECT_NEAR(now, mean[i], 1e-12) << kind.name;
    }
  }
}

TEST(Gossip, OfCompressedDifferencesAgrees) {
  const QuantiserOptions options{.levels = 4};
  Choco choco(metropolis(make_graph("ring", 8, 0, 1)), 0.3, find_quantiser("qsgd", options), options);
  std::vector<std::vector<double>> models;
  for (std::uint32_t device = 0; device < 8; ++device) models.push_back(random_vector(6, device));
  std::vector<double> mean(6);
  for (const auto& model : models)
    for (std::size_t i = 0; i < 6; ++i) mean[i] += model[i] / 8;
  for (int step = 0; step < 400; ++step) choco.mix(models, 1, step);
  for (const auto& model : models)
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(model[i], mean[i], 1e-6);
}

TEST(Gossip, RefusesWhatCannotAgree) {
  EXPECT_THAT(refusal([] { make_graph("erdos-renyi", 10, 0, 1); }), HasSubstr("does not reach device 1"));
  EXPECT_THAT(refusal([] { make_graph("rign", 10, 0, 1); }), HasSubstr("did you mean ring"));
  EXPECT_THAT(refusal([] { make_graph("ring", 0, 0, 1); }), HasSubstr("a graph of 0 devices"));
  EXPECT_THAT(refusal([] { make_graph("geometric", 4, -1, 1); }), HasSubstr("a density of -1"));
  EXPECT_THAT(refusal([] { check_doubly_stochastic({{0.5, 0.4}, {0.4, 0.5}}); }),
              HasSubstr("row 0 of the weights sums to 0.9"));
  EXPECT_THAT(refusal([] { check_doubly_stochastic({{0.5, 0.5, 0}, {0.2, 0.5, 0.3}, {0.3, 0, 0.7}}); }),
              HasSubstr("not the same both ways"));
  EXPECT_THAT(refusal([] { check_doubly_stochastic({{1.0, 0.0}}); }), HasSubstr("give a square"));
  EXPECT_NEAR(contraction({{1, 0}, {0, 1}}), 1, 1e-12) << "two devices that never meet";
  EXPECT_THAT(refusal([] { Choco({{1}}, 0, quantisers().front(), {}); }), HasSubstr("a consensus step of 0"));
}

TEST(Aggregators, AverageByWeights) {
  EXPECT_THAT(weighted_mean({{2, 4}, {6, 0}}, std::vector<double>{0.25, 0.75}), ElementsAre(5, 1));
  EXPECT_THAT(majority({{1, -1, 1}, {3, -3, -3}, {2, 2, -2}}), ElementsAre(2, -2, -2));
  EXPECT_THAT(majority({{1, -1}, {-1, -1}}), ElementsAre(0, -1));
  EXPECT_THAT(refusal([] { weighted_mean({{1.0}, {1.0}}, std::vector<double>{0.5, 0.6}); }),
              HasSubstr("they must sum to 1"));
  EXPECT_THAT(refusal([] { weighted_mean({}, {}); }), HasSubstr("nobody sent an update"));
  EXPECT_THAT(refusal([] { majority({}); }), HasSubstr("nobody sent a sign"));
  EXPECT_THAT(refusal([] { find_aggregator("gosip"); }), HasSubstr("did you mean gossip"));
}

}  // namespace
}  // namespace dear::methods::edge::aggregation_test
