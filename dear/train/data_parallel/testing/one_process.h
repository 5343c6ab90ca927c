#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

// One program, written once: one process runs it with the losses of all ranks, and each rank with its own.
// What it trains must be the same to the bit.
namespace dear::train::testing {

inline constexpr std::int64_t kInputs = 16;

inline void fill(const torch::Tensor& tensor, double phase = 0) {
  const torch::NoGradGuard no_grad;
  torch::Tensor(tensor).copy_(
      0.2 * torch::sin(phase + torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t classes = 3) {
    first = register_module("first", torch::nn::Linear(kInputs, 40));
    second = register_module("second", torch::nn::Linear(40, 24));
    head = register_module("head", torch::nn::Linear(24, classes));
    for (const torch::Tensor& tensor : parameters()) fill(tensor);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::tanh(first(x));
    x = torch::tanh(second(x));
    if (!extra.is_empty()) x = x + extra(x);
    return head(x);
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, head{nullptr};
  torch::nn::Linear extra{nullptr};  // a layer or adapter that comes later
};
TORCH_MODULE(Net);

struct Job {
  Net& net;
  torch::optim::AdamW& optimizer;
  DataParallel* dp;  // null in one process
  int rank, ranks;
  at::ScalarType type = torch::kFloat32;
  std::vector<torch::Tensor> masters = {};  // in one process, of the parameters that are not fp32
  std::vector<torch::Tensor> results = {};  // to be compared beside the parameters

  void backward(int step, int of) const {
    const Batch batch = rows(step, 2 * of, 2, kInputs);
    const torch::Tensor out = net->forward(batch.inputs.to(type));
    torch::mse_loss(out.narrow(1, 0, 3), batch.targets.to(type)).backward();
  }
  void backward(int step) {
    if (dp != nullptr) return backward(step, rank);
    std::vector<torch::Tensor> sums(net->parameters().size());
    for (int of = 0; of < ranks; ++of) {
      backward(step, of);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        torch::Tensor& gradient = net->parameters()[i].mutable_grad();
        if (!gradient.defined()) continue;
        sums[i] = sums[i].defined() ? sums[i] + gradient.to(torch::kFloat32) : gradient.to(torch::kFloat32);
        gradient.reset();
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (sums[i].defined()) net->parameters()[i].mutable_grad() = (sums[i] / ranks).to(type);
  }
  // Once the gradients are there.
  void step() {
    if (dp != nullptr) return dp->step();
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> parameters = net->parameters();
    for (std::size_t i = 0; i < masters.size(); ++i) {  // what was written becomes the master
      const torch::Tensor written = masters[i].to(type) != parameters[i];
      masters[i].copy_(torch::where(written, parameters[i].to(torch::kFloat32), masters[i]));
      masters[i].mutable_grad() = parameters[i].grad().to(torch::kFloat32);
    }
    optimizer.step();
    for (std::size_t i = 0; i < masters.size(); ++i) parameters[i].copy_(masters[i]);
    for (torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
  }
  void train(int step_) {
    backward(step_);
    step();
  }
};
using Program = std::function<void(Job&)>;

struct Setting {
  std::vector<int> ranks = {1, 2, 4};
  std::vector<std::string> policies = {"serial", "wfbp", "dear-replicated", "dear", "dear-eager"};
  DataParallelOptions options = {.buckets = given(Fusion::parse("2KiB"))};
  at::ScalarType type = torch::kFloat32;
  bool slow = false;  // collectives take milliseconds
  // Freezes some, and returns what the optimiser is given.
  std::function<std::vector<torch::Tensor>(Net&)> held = [](Net& net) { return net->parameters(); };
};

inline torch::optim::AdamWOptions adamw_options() {
  return torch::optim::AdamWOptions(1e-2).weight_decay(0.1);
}

inline std::vector<torch::Tensor> results_of(Job& job) {
  std::vector<torch::Tensor> all = job.net->parameters();
  all.insert(all.end(), job.results.begin(), job.results.end());
  return all;
}

inline std::vector<torch::Tensor> in_one_process(const Program& program, int ranks, const Setting& setting) {
  Net net;
  net->to(setting.type);
  std::vector<torch::Tensor> masters;
  if (setting.type != torch::kFloat32)
    for (const torch::Tensor& tensor : net->parameters())
      masters.push_back(tensor.detach().to(torch::kFloat32));
  torch::optim::AdamW adamw(masters.empty() ? setting.held(net) : masters, adamw_options());
  Job job{net, adamw, nullptr, 0, ranks, setting.type, masters};
  program(job);
  return results_of(job);
}

inline void expect_as_one_process(const Program& program, const Setting& setting = {}) {
  for (const int ranks : setting.ranks) {
    const std::vector<torch::Tensor> expected = in_one_process(program, ranks, setting);
    for (const std::string& policy : setting.policies) {
      const auto on_rank = [&](int rank, Group group) {
        Net net;
        net->to(setting.type);
        torch::optim::AdamW adamw(setting.held(net), adamw_options());
        DataParallelOptions options = setting.options;
        options.policy = policy;
        options.fp32_masters = setting.type != torch::kFloat32;
        DataParallel dp(*net, adamw, std::move(group), options);
        Job job{net, adamw, &dp, rank, ranks, setting.type};
        program(job);
        dp.synchronize();
        const std::vector<torch::Tensor> found = results_of(job);
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(torch::equal(found[i], expected[i]))
              << policy << ", rank " << rank << " of " << ranks << ": tensor " << i << " is off by "
              << (found[i] - expected[i]).abs().max().item<float>();
      };
      const auto errors =
          run_each(setting.slow && ranks > 1 ? slow_groups(ranks, 1e-3) : groups_of(ranks), on_rank);
      for (const std::exception_ptr& error : errors) EXPECT_EQ(what_of(error), "") << policy << ", " << ranks;
    }
  }
}

}  // namespace dear::train::testing
