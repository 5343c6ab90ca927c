// K-FAC: what ranks compute is what one process computes on the union of their batches, whatever the
// strategy, and what the definition says.

#include "dear/systems/kfac/kfac.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/systems/kfac/testing/trained.h"

namespace dear::kfac_test {
namespace {

using systems::kfac::testing::Case;
using systems::kfac::testing::expect_near;
using systems::kfac::testing::fill;
using systems::kfac::testing::kRows;
using systems::kfac::testing::loss_of;
using systems::kfac::testing::Net;
using systems::kfac::testing::Rank;
using systems::kfac::testing::trained;
using train::testing::groups_of;

const std::vector<std::string> kStrategies{"d-kfac", "mpd-kfac", "mpd-kfac-owner", "spd-kfac",
                                           "spd-kfac-owner"};

class Strategies : public ::testing::TestWithParam<std::string> {};

TEST_P(Strategies, AreOneProcessOnTheUnion) {
  const std::vector<torch::Tensor> expected = trained(1, {});
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    expect_near(trained(ranks, {.options = {.strategy = GetParam()}}), expected);
  }
}

TEST_P(Strategies, AreOneProcessWithEveryFusion) {
  const std::vector<torch::Tensor> expected = trained(1, {.steps = 8});
  for (const char* fusion : {"alone", "threshold", "rule", "exact", "together"}) {
    SCOPED_TRACE(fusion);
    expect_near(
        trained(2, {.options = {.strategy = GetParam(), .fusion = fusion, .replan_after = 2}, .steps = 8}),
        expected);
  }
}

TEST_P(Strategies, AreOneProcessWithIntervalsAndTheCorrectionOfDamping) {
  const KfacOptions options{.damping = 0.02, .pi_correction = true, .factor_every = 2, .inverse_every = 6};
  const std::vector<torch::Tensor> expected = trained(1, {.options = options});
  KfacOptions same = options;
  same.strategy = GetParam();
  for (const int ranks : {2, 4}) expect_near(trained(ranks, {.options = same}), expected);
}

INSTANTIATE_TEST_SUITE_P(Kfac, Strategies, ::testing::ValuesIn(kStrategies), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
});

TEST(KfacTest, IsTheSameUnderEveryPolicyThatTakesIt) {
  const std::vector<torch::Tensor> expected = trained(1, {});
  for (const char* policy : {"serial", "wfbp", "dear-replicated", "dear"}) {
    SCOPED_TRACE(policy);
    expect_near(trained(2, {.parallel = {.policy = policy, .buckets = given(Fusion())}}), expected);
  }
  expect_near(trained(3, {.parallel = {.buckets = given(Fusion()), .one_copy = true},
                          .take_step =
                              [](Rank& rank, int step) {  // 8 rows of three ranks: 2, 2 and 4
                                const std::int64_t count = rank.rank == 2 ? 4 : 2;
                                rank.dp.samples(count);
                                loss_of(rank.net, step, 2 * rank.rank, count).backward();
                                rank.kfac.step();
                                rank.dp.step();
                              }}),
              expected);
}

TEST(KfacTest, HidesItsCollectivesOnASlowNetworkAndIsTheSame) {
  const std::vector<torch::Tensor> expected = trained(1, {.steps = 8});
  for (const std::string& strategy : kStrategies)
    expect_near(trained(2, {.options = {.strategy = strategy}, .steps = 8, .slow = true}), expected);
}

TEST(KfacTest, WeighsRanksByTheirSamples) {
  const std::vector<torch::Tensor> expected = trained(1, {});
  const auto uneven = [](Rank& rank, int step) {
    const std::int64_t count = rank.rank == 0 ? 1 : kRows - 1;
    rank.dp.samples(count);
    loss_of(rank.net, step, rank.rank, count).backward();
    rank.kfac.step();
    rank.dp.step();
  };
  for (const std::string& strategy : kStrategies)
    expect_near(trained(2, {.options = {.strategy = strategy}, .take_step = uneven}), expected);
}

TEST(KfacTest, ARankWithoutSamplesTakesPart) {
  const std::vector<torch::Tensor> expected = trained(1, {});
  const auto one_has_all = [](Rank& rank, int step) {
    const bool mine = rank.rank == step % 2;
    rank.dp.samples(mine ? kRows : 0);
    if (mine) loss_of(rank.net, step, 0, kRows).backward();
    rank.kfac.step();
    rank.dp.step();
  };
  for (const std::string& strategy : kStrategies)
    expect_near(trained(2, {.options = {.strategy = strategy}, .take_step = one_has_all}), expected);
}

// Two halves of a batch, whose mean is the loss; every third step is of one pass.
TEST(KfacTest, AccumulatedPassesAreOneOfAllSamples) {
  const std::vector<torch::Tensor> expected = trained(1, {});
  const auto halves = [](Rank& rank, int step) {
    if (step % 3 == 2) return systems::kfac::testing::take_step(rank, step);
    const std::int64_t half = rank.rows() / 2;
    for (int part = 0; part < 2; ++part) {
      const auto backward = [&] {
        (loss_of(rank.net, step, rank.rank * rank.rows() + part * half, half) / 2).backward();
      };
      if (part == 0) {
        const auto guard = rank.dp.no_sync();
        backward();
      } else {
        backward();
      }
    }
    rank.kfac.step({.loss_scale = 0.5});
    rank.dp.step();
  };
  for (const std::string& strategy : kStrategies)
    for (const int ranks : {1, 2})
      expect_near(trained(ranks, {.options = {.strategy = strategy}, .take_step = halves}), expected);
}

TEST(KfacTest, SinglePrecisionIsClose) {
  const std::vector<torch::Tensor> expected = trained(1, {});
  std::vector<torch::Tensor> found = trained(2, {.type = at::kFloat});
  for (torch::Tensor& tensor : found) tensor = tensor.to(at::kDouble);
  expect_near(found, expected, 1e-4);
}

// Factors of 16-bit layers are of fp32.
TEST(KfacTest, SixteenBitsAreNear) {
  const std::vector<torch::Tensor> expected = trained(1, {.steps = 6});
  std::vector<torch::Tensor> found = trained(2, {.steps = 6, .type = at::kBFloat16});
  for (torch::Tensor& tensor : found) tensor = tensor.to(at::kDouble);
  expect_near(found, expected, 0.05);
}

// Whatever of their samples was on its way already.
TEST(KfacTest, StepsThatAreGivenUpAreTheSameForEveryStrategy) {
  const auto giving_up = [](Rank& rank, int step) {
    if (step % 3 == 1) {
      rank.backward(step + 100);
      rank.dp.discard_step();
    }
    systems::kfac::testing::take_step(rank, step);
  };
  const std::vector<torch::Tensor> expected = trained(1, {.take_step = giving_up});
  for (const std::string& strategy : kStrategies)
    expect_near(trained(2, {.options = {.strategy = strategy}, .take_step = giving_up}), expected);
}

// ---- the definition

// Returns what a layer's gradient becomes: the solution of the dense system with both factors, of which each
// is the running average that began as the identity.
torch::Tensor solved(const torch::Tensor& a, const torch::Tensor& g, const torch::Tensor& gradient,
                     const KfacOptions& options) {
  const auto damped = [&](const torch::Tensor& factor) {
    const torch::Tensor identity = torch::eye(factor.size(0), factor.options());
    return options.ema * identity + (1 - options.ema) * factor + options.damping * identity;
  };
  // Rows of a matrix one after another: vec(G V A) = (G (x) A) vec(V).
  return torch::linalg_solve(torch::kron(damped(g), damped(a)), gradient.flatten()).view_as(gradient);
}

torch::Tensor with_bias(const torch::Tensor& weight, const torch::Tensor& bias) {
  return bias.defined() ? torch::cat({weight.flatten(1), bias.unsqueeze(1)}, 1) : weight.flatten(1).clone();
}

const KfacOptions kPlain{.damping = 0.03, .ema = 0.2, .kl_clip = {}};

// Gradients of a model that is one layer, on a batch: of the weight, before and after, and of the output.
struct OneLayer {
  torch::Tensor plain, preconditioned, of_output;
};
template <typename Module>
OneLayer precondition(Module& layer, const torch::Tensor& inputs, const KfacOptions& options,
                      const KfacStep& step = {}) {
  layer->zero_grad();
  layer->to(torch::kFloat64);
  fill(layer->weight, 0.2);
  if (layer->bias.defined()) fill(layer->bias, 0.9);
  const auto loss = [&](const torch::Tensor& output) { return torch::cos(output).mean() * step.loss_scale; };
  const torch::Tensor output = layer(inputs).detach().requires_grad_();
  OneLayer result;
  result.of_output = torch::autograd::grad({loss(output)}, {output})[0] / step.loss_scale;
  torch::optim::SGD sgd(layer->parameters(), 0.1);
  DataParallel dp(*layer, sgd, groups_of(1)[0], {.buckets = given(Fusion())});
  Kfac kfac(*layer, dp, options);
  loss(layer(inputs)).backward();
  const auto gradient = [&] {
    return with_bias(layer->weight.grad(), layer->bias.defined() ? layer->bias.grad() : torch::Tensor());
  };
  result.plain = gradient();
  kfac.step(step);
  result.preconditioned = gradient();
  EXPECT_FALSE(torch::allclose(result.preconditioned, result.plain, 0.05, 1e-5));
  return result;
}

void expect_equal(const torch::Tensor& found, const torch::Tensor& expected) {
  EXPECT_TRUE(torch::allclose(found, expected, 1e-9, 1e-11)) << found << expected;
}

TEST(KfacDefinition, SolvesTheSystemOfALinearLayer) {
  torch::nn::Linear layer(3, 2);
  const torch::Tensor inputs = torch::sin(torch::arange(15, torch::kFloat64)).view({5, 3});
  const OneLayer of = precondition(layer, inputs, kPlain);
  const torch::Tensor a = torch::cat({inputs, torch::ones({5, 1}, torch::kFloat64)}, 1);
  const torch::Tensor& g = of.of_output;
  expect_equal(of.preconditioned, solved(a.t().mm(a) / 5, 5 * g.t().mm(g), of.plain, kPlain));
}

// Each position of each sequence is a sample. Of a loss that is a mean over sequences, batch * g^T g is the G
// of Eschenhagen et al. 2023 (arXiv 2311.00636), and G here as many times that as there are positions.
TEST(KfacDefinition, TakesPositionsOfSequencesAsSamples) {
  const std::int64_t batch = 2, positions = 5;
  torch::nn::Linear layer(3, 2);
  const torch::Tensor inputs = torch::sin(torch::arange(30, torch::kFloat64)).view({batch, positions, 3});
  const OneLayer of = precondition(layer, inputs, kPlain);
  const torch::Tensor a =
      torch::cat({inputs.flatten(0, 1), torch::ones({batch * positions, 1}, torch::kFloat64)}, 1);
  const torch::Tensor g = of.of_output.flatten(0, 1);
  const torch::Tensor of_sequences = static_cast<double>(batch) * g.t().mm(g);
  expect_equal(of.preconditioned, solved(a.t().mm(a) / static_cast<double>(batch * positions),
                                         static_cast<double>(positions) * of_sequences, of.plain, kPlain));
}

TEST(KfacDefinition, TakesTheScaleOfALossAway) {
  torch::nn::Linear layer(3, 2);
  const torch::Tensor inputs = torch::sin(torch::arange(15, torch::kFloat64)).view({5, 3});
  const OneLayer of = precondition(layer, inputs, kPlain, {.loss_scale = 8});
  const torch::Tensor a = torch::cat({inputs, torch::ones({5, 1}, torch::kFloat64)}, 1);
  expect_equal(of.preconditioned,
               solved(a.t().mm(a) / 5, 5 * of.of_output.t().mm(of.of_output), of.plain, kPlain));
}

// Patches taken by loops, element by element.
TEST(KfacDefinition, SolvesTheSystemOfAConvolution) {
  for (const bool bias : {true, false}) {
    torch::nn::Conv2d layer(
        torch::nn::Conv2dOptions(2, 3, {2, 3}).stride({1, 2}).padding({1, 0}).dilation({2, 1}).bias(bias));
    const torch::Tensor inputs = torch::sin(torch::arange(4 * 2 * 4 * 7, torch::kFloat64)).view({4, 2, 4, 7});
    const OneLayer of = precondition(layer, inputs, kPlain);
    const torch::Tensor& g = of.of_output;  // [4, 3, 4, 3]
    ASSERT_EQ(g.sizes(), at::IntArrayRef({4, 3, 4, 3}));
    const std::int64_t batch = 4, height = 4, width = 3, positions = height * width;
    torch::Tensor patches = torch::zeros({batch, height, width, 2, 2, 3}, torch::kFloat64);
    auto out = patches.accessor<double, 6>();
    const auto in = inputs.accessor<double, 4>();
    for (std::int64_t n = 0; n < batch; ++n)
      for (std::int64_t y = 0; y < height; ++y)
        for (std::int64_t x = 0; x < width; ++x)
          for (std::int64_t c = 0; c < 2; ++c)
            for (std::int64_t i = 0; i < 2; ++i)
              for (std::int64_t j = 0; j < 3; ++j) {
                const std::int64_t row = y - 1 + 2 * i, column = 2 * x + j;
                if (row >= 0 && row < 4) out[n][y][x][c][i][j] = in[n][c][row][column];
              }
    torch::Tensor a = patches.view({batch * positions, 12});
    if (bias) a = torch::cat({a, torch::ones({batch * positions, 1}, torch::kFloat64)}, 1);
    a = a / positions;
    const torch::Tensor rows = g.permute({0, 2, 3, 1}).reshape({-1, 3}) * batch * positions;
    expect_equal(of.preconditioned,
                 solved(a.t().mm(a) / batch, rows.t().mm(rows) / (batch * positions), of.plain, kPlain));
  }
}

TEST(KfacDefinition, PaddingThatKeepsTheSizeIsThatOfNumbers) {
  const torch::Tensor inputs = torch::sin(torch::arange(2 * 5 * 6, torch::kFloat64)).view({1, 2, 5, 6});
  torch::nn::Conv2d words(torch::nn::Conv2dOptions(2, 3, 3).padding(torch::kSame));
  torch::nn::Conv2d numbers(torch::nn::Conv2dOptions(2, 3, 3).padding(1));
  expect_equal(precondition(words, inputs, kPlain).preconditioned,
               precondition(numbers, inputs, kPlain).preconditioned);
}

// A is of traces 1 x mean diagonal: pi is the root of their ratio.
TEST(KfacDefinition, SplitsTheDampingByMeanDiagonals) {
  torch::nn::Linear layer(3, 2);
  const torch::Tensor inputs = 4 * torch::sin(torch::arange(15, torch::kFloat64)).view({5, 3});
  KfacOptions options = kPlain;
  options.pi_correction = true;
  const OneLayer of = precondition(layer, inputs, options);
  const torch::Tensor rows = torch::cat({inputs, torch::ones({5, 1}, torch::kFloat64)}, 1);
  const auto average = [&](const torch::Tensor& factor) {
    return options.ema * torch::eye(factor.size(0), factor.options()) + (1 - options.ema) * factor;
  };
  const torch::Tensor a = average(rows.t().mm(rows) / 5);
  const torch::Tensor g = average(5 * of.of_output.t().mm(of.of_output));
  const double pi = std::sqrt(a.trace().item<double>() / 4 / (g.trace().item<double>() / 2));
  const double root = std::sqrt(options.damping);
  const auto inverse = [&](const torch::Tensor& factor, double damping) {
    return torch::linalg_inv(factor + damping * torch::eye(factor.size(0), factor.options()));
  };
  expect_equal(of.preconditioned, inverse(g, root / pi).mm(of.plain).mm(inverse(a, root * pi)));
}

TEST(KfacDefinition, ClipsByTheLearningRate) {
  torch::nn::Linear layer(3, 2);
  const torch::Tensor inputs = torch::sin(torch::arange(15, torch::kFloat64)).view({5, 3});
  const OneLayer free = precondition(layer, inputs, kPlain);
  const double divergence = (free.preconditioned * free.plain).sum().item<double>();
  KfacOptions options = kPlain;
  options.kl_clip = 1e-6;
  const auto clipped = [&](double rate) { return free.preconditioned * std::sqrt(1e-6 / divergence) / rate; };
  expect_equal(precondition(layer, inputs, options).preconditioned, clipped(0.1));  // the optimiser's
  expect_equal(precondition(layer, inputs, options, {.learning_rate = 3}).preconditioned, clipped(3));
  options.kl_clip = 1e6;
  expect_equal(precondition(layer, inputs, options).preconditioned, free.preconditioned);
}

// Inputs whose scales lie three powers of ten apart: gradient descent needs thousands of steps.
TEST(KfacTest, ReachesALossInFewerStepsThanSgdWhereCurvatureIsUneven) {
  const auto steps_to = [](double target, double rate, bool with_kfac) {
    torch::nn::Linear layer(6, 2);
    layer->to(torch::kFloat64);
    fill(layer->weight, 0.1);
    fill(layer->bias, 0.4);
    const torch::Tensor scales = torch::pow(10.0, -torch::arange(6, torch::kFloat64) / 2);
    const torch::Tensor inputs =
        torch::sin(torch::arange(384, torch::kFloat64).square()).view({64, 6}) * scales;
    const torch::Tensor truth =
        torch::cos(torch::arange(12, torch::kFloat64)).view({6, 2}) / scales.unsqueeze(1);
    const torch::Tensor targets = inputs.mm(truth);
    torch::optim::SGD sgd(layer->parameters(), torch::optim::SGDOptions(rate).momentum(0.9));
    DataParallel dp(*layer, sgd, groups_of(1)[0], {.buckets = given(Fusion())});
    Kfac kfac(*layer, dp, {.damping = 1e-6, .kl_clip = {}});
    for (int step = 1; step <= 600; ++step) {
      const torch::Tensor loss = torch::mse_loss(layer(inputs), targets);
      if (loss.item<double>() < target) return step;
      loss.backward();
      if (with_kfac) kfac.step();
      dp.step();
    }
    return 601;
  };
  int best_of_sgd = 601, best_of_kfac = 601;
  for (const double rate : {0.01, 0.03, 0.1, 0.3, 1.0}) {
    best_of_sgd = std::min(best_of_sgd, steps_to(1e-3, rate, false));
    best_of_kfac = std::min(best_of_kfac, steps_to(1e-3, rate, true));
  }
  EXPECT_LE(2 * best_of_kfac, best_of_sgd);
}

}  // namespace
}  // namespace dear::kfac_test
