#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/systems/kfac/kfac.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

// One program with K-FAC, which any number of ranks runs on the same samples. In double precision.
namespace dear::systems::kfac::testing {

// Ranks are threads, and what they compute is small: threads of libtorch's own would only wait for each
// other.
inline const bool kOneThreadEach = (at::set_num_threads(1), true);

inline constexpr std::int64_t kFeatures = 12;
inline constexpr std::int64_t kRows = 8;  // of all ranks together

inline void fill(const torch::Tensor& tensor, double phase) {
  const torch::NoGradGuard no_grad;
  torch::Tensor(tensor).copy_(
      0.3 * torch::sin(phase + torch::arange(tensor.numel(), torch::kFloat64)).view_as(tensor));
}

// Convolutions with and without padding, stride, dilation and bias; a linear layer that is used twice, one
// without bias on an input of three dimensions, and one that no pass uses.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    using torch::nn::Conv2d;
    using torch::nn::Conv2dOptions;
    using torch::nn::Linear;
    spread = register_module("spread", Conv2d(Conv2dOptions(1, 3, 3).padding(1).bias(false)));
    narrow = register_module("narrow", Conv2d(Conv2dOptions(3, 5, {1, 2}).stride({2, 1}).dilation({1, 2})));
    twice = register_module("twice", Linear(10, 10));
    plain = register_module("plain", Linear(torch::nn::LinearOptions(5, 5).bias(false)));
    spare = register_module("spare", Linear(10, 10));
    last = register_module("last", Linear(10, 3));
    to(torch::kFloat64);
    double phase = 0;
    for (const torch::Tensor& tensor : parameters()) fill(tensor, phase += 0.7);
  }
  torch::Tensor forward(const torch::Tensor& inputs) {
    torch::Tensor x = torch::tanh(spread(inputs.to(spread->weight.scalar_type()).view({-1, 1, 3, 4})));
    x = torch::tanh(narrow(x)).flatten(1).narrow(1, 0, 10);
    x = torch::tanh(twice(torch::tanh(twice(x))));
    x = torch::tanh(plain(x.view({-1, 2, 5}))).flatten(1);
    return last(x);
  }
  torch::nn::Conv2d spread{nullptr}, narrow{nullptr};
  torch::nn::Linear twice{nullptr}, plain{nullptr}, spare{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

inline torch::Tensor loss_of(Net& net, int step, std::int64_t first, std::int64_t count) {
  const train::testing::Batch batch = train::testing::rows(step, first, count, kFeatures);
  const torch::Tensor output = net->forward(batch.inputs);
  return torch::mse_loss(output, batch.targets.to(output.scalar_type()));
}

// A rank of one training.
struct Rank {
  Net& net;
  DataParallel& dp;
  Kfac& kfac;
  int rank, ranks;
  [[nodiscard]] std::int64_t rows() const { return kRows / ranks; }
  void backward(int step) const { loss_of(net, step, rank * rows(), rows()).backward(); }
};
using TakeStep = std::function<void(Rank& rank, int step)>;
inline void take_step(Rank& rank, int step) {
  rank.backward(step);
  rank.kfac.step();
  rank.dp.step();
}

struct Case {
  KfacOptions options{};
  DataParallelOptions parallel = {.buckets = given(Fusion::parse("layer"))};
  int steps = 20;
  TakeStep take_step = systems::kfac::testing::take_step;
  bool slow = false;
  at::ScalarType type = at::kDouble;
};

// The parameters after training, which are the same on all ranks.
inline std::vector<torch::Tensor> trained(int ranks, const Case& one) {
  std::vector<std::vector<torch::Tensor>> results(static_cast<std::size_t>(ranks));
  const auto on_rank = [&](int rank, Group group) {
    Net net;
    net->to(one.type);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    DataParallel dp(*net, sgd, std::move(group), one.parallel);
    Kfac kfac(*net, dp, one.options);
    Rank own{net, dp, kfac, rank, ranks};
    for (int step = 0; step < one.steps; ++step) one.take_step(own, step);
    dp.synchronize();
    for (const torch::Tensor& tensor : net->parameters())
      results[static_cast<std::size_t>(rank)].push_back(tensor.detach().clone());
  };
  const auto errors = train::testing::run_each(
      one.slow ? train::testing::slow_groups(ranks, 1e-3) : train::testing::groups_of(ranks), on_rank);
  for (const auto& error : errors) EXPECT_EQ(train::testing::what_of(error), "");
  for (const auto& result : results) {
    EXPECT_EQ(result.size(), results[0].size());
    for (std::size_t i = 0; i < result.size() && i < results[0].size(); ++i)
      EXPECT_TRUE(torch::equal(result[i], results[0][i])) << i;
  }
  return results[0];
}

inline void expect_near(const std::vector<torch::Tensor>& found, const std::vector<torch::Tensor>& expected,
                        double tolerance = 1e-10) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(torch::allclose(found[i], expected[i], tolerance, tolerance))
        << "tensor " << i << " differs by " << (found[i] - expected[i]).abs().max().item<double>();
}

}  // namespace dear::systems::kfac::testing
