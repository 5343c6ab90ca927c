#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

// A network whose layers are worth tuning, for the tests of train.
namespace dear::train::testing {

inline constexpr std::int64_t kFeatures = 16;

// From [rows, kFeatures] to [rows, 3]; six linear layers, four of 100 KiB. The same parameters each time.
inline torch::nn::Sequential make_net() {
  constexpr std::int64_t kWidth = 160;
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, kWidth), torch::nn::ReLU());
  for (int i = 0; i < 4; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
  net->push_back(torch::nn::Linear(kWidth, 3));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& tensor : net->parameters())
    tensor.copy_(0.05 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  return net;
}

}  // namespace dear::train::testing
