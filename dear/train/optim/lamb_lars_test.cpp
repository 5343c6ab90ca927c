// LAMB and LARS in one process: the papers' formulas, their options, saving and loading.

#include <cmath>
#include <sstream>
#include <stdexcept>

#include <gtest/gtest.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include "dear/train/optim/lamb.h"
#include "dear/train/optim/lars.h"

namespace dear {
namespace {

torch::Tensor parameter() {
  return (0.3 * torch::sin(torch::arange(1, 61, torch::kFloat32))).view({6, 10}).requires_grad_();
}
torch::Tensor gradient(int step) {
  return torch::cos(torch::arange(60, torch::kFloat32) * (step + 1)).view({6, 10});
}
double norm_of(const torch::Tensor& tensor) { return tensor.to(torch::kFloat64).norm().item<double>(); }

template <typename Optimizer>
torch::Tensor train(Optimizer& optimizer, torch::Tensor tensor, int steps) {
  for (int step = 0; step < steps; ++step) {
    tensor.mutable_grad() = gradient(step);
    optimizer.step();
  }
  return tensor.detach();
}

// In double precision, as the paper writes it.
torch::Tensor lamb_by_hand(const LAMBOptions& options, int steps) {
  torch::Tensor w = parameter().detach().to(torch::kFloat64);
  torch::Tensor m = torch::zeros_like(w), v = torch::zeros_like(w);
  const auto [beta1, beta2] = options.betas();
  for (int t = 1; t <= steps; ++t) {
    const torch::Tensor g = gradient(t - 1).to(torch::kFloat64);
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double c1 = options.bias_correction() ? 1 - std::pow(beta1, t) : 1;
    const double c2 = options.bias_correction() ? 1 - std::pow(beta2, t) : 1;
    torch::Tensor u = (m / c1) / ((v / c2).sqrt() + options.eps());
    if (options.decay() == WeightDecay::scaled) u = u + options.weight_decay() * w;
    double ratio = std::min(norm_of(w), options.max_norm()) / norm_of(u);
    ratio = options.adapt() ? std::min(ratio, options.max_ratio()) : 1;
    if (options.decay() == WeightDecay::decoupled) w = w * (1 - options.lr() * options.weight_decay());
    w = w - options.lr() * ratio * u;
  }
  return w.to(torch::kFloat32);
}

TEST(LAMB, IsThePapersWithEveryOption) {
  for (const LAMBOptions& options :
       {LAMBOptions(0.1), LAMBOptions(0.1).weight_decay(0.2), LAMBOptions(0.1).bias_correction(false),
        LAMBOptions(0.1).adapt(false), LAMBOptions(0.1).max_norm(0.5), LAMBOptions(0.1).max_ratio(0.2),
        LAMBOptions(0.1).weight_decay(0.2).decay(WeightDecay::decoupled)}) {
    torch::Tensor tensor = parameter();
    LAMB lamb({tensor}, options);
    EXPECT_TRUE(torch::allclose(train(lamb, tensor, 4), lamb_by_hand(options, 4), 1e-5, 1e-6));
  }
}

torch::Tensor lars_by_hand(const LARSOptions& options, int steps) {
  torch::Tensor w = parameter().detach().to(torch::kFloat64);
  torch::Tensor buffer = torch::zeros_like(w);
  for (int step = 0; step < steps; ++step) {
    const torch::Tensor g = gradient(step).to(torch::kFloat64);
    const double inside = options.decay() == WeightDecay::scaled ? options.weight_decay() : 0;
    double ratio =
        options.trust_coefficient() * norm_of(w) / (norm_of(g) + inside * norm_of(w) + options.eps());
    if (options.larc()) ratio = std::min(ratio / options.lr(), 1.0);
    if (!options.adapt()) ratio = 1;
    if (options.decay() == WeightDecay::decoupled) w = w * (1 - options.lr() * options.weight_decay());
    const torch::Tensor u = ratio * (g + inside * w);
    buffer = options.momentum() * buffer + u;
    w = w - options.lr() * (options.nesterov() ? u + options.momentum() * buffer : buffer);
  }
  return w.to(torch::kFloat32);
}

TEST(LARS, IsThePapersWithEveryOption) {
  for (const LARSOptions& options :
       {LARSOptions(5), LARSOptions(5).weight_decay(0.1), LARSOptions(5).momentum(0),
        LARSOptions(5).nesterov(true), LARSOptions(0.01).adapt(false), LARSOptions(0.0005).larc(true),
        LARSOptions(0.05).larc(true), LARSOptions(5).eps(1).trust_coefficient(0.01),
        LARSOptions(0.05).weight_decay(0.1).decay(WeightDecay::decoupled)}) {
    torch::Tensor tensor = parameter();
    LARS lars({tensor}, options);
    EXPECT_TRUE(torch::allclose(train(lars, tensor, 4), lars_by_hand(options, 4), 1e-5, 1e-6));
  }
}

TEST(LAMB, TakesAZeroTensorForOneOfRatioOne) {
  torch::Tensor zeros = torch::zeros({8}, torch::requires_grad());
  LAMB lamb({zeros}, LAMBOptions(0.5).weight_decay(0));
  zeros.mutable_grad() = torch::ones({8});
  lamb.step();
  EXPECT_TRUE(torch::allclose(zeros, torch::full({8}, -0.5)));
}

TEST(LAMB, RefusesOptionsOutOfRange) {
  EXPECT_THROW(LAMB({parameter()}, LAMBOptions(-1)), std::invalid_argument);
  EXPECT_THROW(LAMB({parameter()}, LAMBOptions(1).betas({1, 0.5})), std::invalid_argument);
  EXPECT_THROW(LARS({parameter()}, LARSOptions(1).momentum(0).nesterov(true)), std::invalid_argument);
}

template <typename Optimizer, typename Options>
void goes_on_after_saving(const Options& options) {
  torch::Tensor expected = parameter(), saved = parameter(), loaded = parameter();
  Optimizer whole({expected}, options), before({saved}, options), after({loaded}, Options(1));
  train(whole, expected, 6);
  train(before, saved, 3);
  std::stringstream file;
  torch::save(before, file);
  torch::load(after, file);
  {
    const torch::NoGradGuard no_grad;
    loaded.copy_(saved);
  }
  for (int step = 3; step < 6; ++step) {
    loaded.mutable_grad() = gradient(step);
    after.step();
  }
  EXPECT_TRUE(torch::equal(loaded, expected));
}

TEST(LAMB, GoesOnAfterSaving) {
  goes_on_after_saving<LAMB>(LAMBOptions(0.1).max_ratio(3).decay(WeightDecay::decoupled).betas({0.8, 0.9}));
}
TEST(LARS, GoesOnAfterSaving) {
  goes_on_after_saving<LARS>(LARSOptions(0.2).nesterov(true).weight_decay(0.1).trust_coefficient(0.05));
}

}  // namespace
}  // namespace dear
