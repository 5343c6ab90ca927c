// K-FAC: what ranks compute is what one process computes on the union of their batches, whatever the
// strategy.

#include "dear/preconditioner/kfac.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/error.h"
#include "dear/train/data_parallel.h"
#include "dear/train/testing/ranks.h"

namespace dear::kfac_test {
namespace {

using ::testing::HasSubstr;
using train::testing::Batch;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;

constexpr std::int64_t kFeatures = 12;
constexpr std::int64_t kRows = 8;  // of all ranks together

void fill(const torch::Tensor& tensor, double phase) {
  const torch::NoGradGuard no_grad;
  torch::Tensor(tensor).copy_(
      0.3 * torch::sin(phase + torch::arange(tensor.numel(), torch::kFloat64)).view_as(tensor));
}

// A layer used twice, one without bias, and one of more than two dimensions.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(kFeatures, 10));
    twice = register_module("twice", torch::nn::Linear(10, 10));
    plain = register_module("plain", torch::nn::Linear(torch::nn::LinearOptions(5, 5).bias(false)));
    last = register_module("last", torch::nn::Linear(10, 3));
    to(torch::kFloat64);
    double phase = 0;
    for (const torch::Tensor& tensor : parameters()) fill(tensor, phase += 0.7);
  }
  torch::Tensor forward(const torch::Tensor& inputs) {
    torch::Tensor x = torch::tanh(first(inputs));
    x = torch::tanh(twice(torch::tanh(twice(x))));
    x = torch::tanh(plain(x.view({-1, 2, 5}))).flatten(1);
    return last(x);
  }
  torch::nn::Linear first{nullptr}, twice{nullptr}, plain{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

struct Case {
  KfacOptions options{};
  std::string policy = "dear";
  int steps = 20;
};

std::vector<torch::Tensor> train(int ranks, const Case& one) {
  std::vector<std::vector<torch::Tensor>> results(static_cast<std::size_t>(ranks));
  run_all(ranks, [&](int rank, Group group) {
    Net net;
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    DataParallel dp(*net, sgd, std::move(group),
                    {.policy = one.policy, .buckets = given(Fusion::parse("layer"))});
    Kfac kfac(*net, dp, one.options);
    for (int step = 0; step < one.steps; ++step) {
      const Batch batch = rows(step, rank * kRows / ranks, kRows / ranks, kFeatures);
      torch::mse_loss(net->forward(batch.inputs.to(torch::kFloat64)), batch.targets.to(torch::kFloat64))
          .backward();
      kfac.step();
      dp.step();
    }
    dp.synchronize();
    EXPECT_EQ(kfac.report().steps, one.steps);
    for (const torch::Tensor& tensor : net->parameters())
      results[static_cast<std::size_t>(rank)].push_back(tensor.detach().clone());
  });
  for (const auto& result : results)
    for (std::size_t i = 0; i < result.size(); ++i) EXPECT_TRUE(torch::equal(result[i], results[0][i])) << i;
  return results[0];
}

void expect_near(const std::vector<torch::Tensor>& found, const std::vector<torch::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-10, 1e-10))
        << "tensor " << i << " differs by " << (found[i] - expected[i]).abs().max().item<double>();
}

TEST(KfacTest, EveryStrategyIsOneProcessOnTheUnion) {
  const std::vector<torch::Tensor> expected = train(1, {});
  for (const char* strategy : {"d-kfac", "mpd-kfac", "mpd-kfac-owner", "spd-kfac", "spd-kfac-owner"})
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(std::string(strategy) + " on " + std::to_string(ranks));
      expect_near(train(ranks, {.options = {.strategy = strategy}}), expected);
    }
}

// What a layer's gradient becomes by the definition: the solution of the dense system with both factors, of
// which each is the running average that began as the identity.
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
  return torch::cat({weight.flatten(1), bias.unsqueeze(1)}, 1);
}

TEST(KfacTest, SolvesTheKroneckerSystemOfALinearLayer) {
  torch::nn::Linear layer(3, 2);
  layer->to(torch::kFloat64);
  fill(layer->weight, 0.2);
  fill(layer->bias, 0.9);
  const torch::Tensor inputs = torch::sin(torch::arange(15, torch::kFloat64)).view({5, 3});
  const torch::Tensor targets = torch::cos(torch::arange(10, torch::kFloat64)).view({5, 2});
  const torch::Tensor output = layer(inputs).detach().requires_grad_();
  const torch::Tensor g = torch::autograd::grad({torch::mse_loss(output, targets)}, {output})[0];
  const torch::Tensor a = torch::cat({inputs, torch::ones({5, 1}, torch::kFloat64)}, 1);

  const KfacOptions options{.damping = 0.03, .ema = 0.2, .kl_clip = {}};
  torch::optim::SGD sgd(layer->parameters(), 0.1);
  DataParallel dp(*layer, sgd, train::testing::groups_of(1)[0], {.buckets = given(Fusion())});
  Kfac kfac(*layer, dp, options);
  torch::mse_loss(layer(inputs), targets).backward();
  const torch::Tensor plain = with_bias(layer->weight.grad(), layer->bias.grad()).clone();
  kfac.step();
  const torch::Tensor expected = solved(a.t().mm(a) / 5, 5 * g.t().mm(g), plain, options);
  const torch::Tensor found = with_bias(layer->weight.grad(), layer->bias.grad());
  EXPECT_FALSE(torch::allclose(found, plain, 0.1, 1e-3));
  EXPECT_TRUE(torch::allclose(found, expected, 1e-10, 1e-12)) << found << expected;
}

}  // namespace
}  // namespace dear::kfac_test
