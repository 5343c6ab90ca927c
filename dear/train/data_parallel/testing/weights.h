#pragma once

#include <utility>

#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/train/data_parallel/data_parallel.h"

namespace dear::train::testing {

// A model of 2 x 40 weights that begin as zeros, whose gradients are what a test gives, and which a step
// becomes less by.
struct Weights {
  explicit Weights(const Group& group, DataParallelOptions options = {.buckets = given(Fusion())})
      : weights(torch::zeros({2, 40}, torch::requires_grad())),
        sgd({weights}, torch::optim::SGDOptions(1.0)),
        dp(Model{.parameters = {{"weights", weights}}, .buffers = {}}, make_optimizer(sgd), group,
           std::move(options)) {}
  void backward(double gradient) { (weights * gradient).sum().backward(); }
  void step(double gradient) {
    backward(gradient);
    dp.step();
  }
  [[nodiscard]] double value() const { return weights.detach().mean().item<double>(); }
  torch::Tensor weights;
  torch::optim::SGD sgd;
  DataParallel dp;
};

}  // namespace dear::train::testing
