// A Muon that a program wrote, whose matrices one rank owns whole, beside AdamW for the rest: as one process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/mean_gradients.h"
#include "dear/train/data_parallel/testing/muon.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/optim/class_access.h"

namespace dear::ownership_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::Batch;
using train::testing::groups_of;
using train::testing::mean_gradients;
using train::testing::message_of;
using train::testing::Muon;
using train::testing::MuonOptions;
using train::testing::MuonState;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;

constexpr std::int64_t kFeatures = 16;
constexpr int kSteps = 5;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(at::ScalarType type) {
    first = register_module("first", torch::nn::Linear(kFeatures, 24));
    second = register_module("second", torch::nn::Linear(24, 24));
    spare = register_module("spare", torch::nn::Linear(24, 3));
    last = register_module("last", torch::nn::Linear(24, 3));
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& tensor : parameters())
      tensor.copy_(0.3 * torch::sin(torch::arange(1, tensor.numel() + 1, torch::kFloat32)).view_as(tensor));
    to(type);
  }
  torch::Tensor forward(const torch::Tensor& inputs, bool with_spare) {
    const torch::Tensor x = torch::tanh(second(torch::tanh(first(inputs))));
    return with_spare ? last(x) + spare(x) : last(x);
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, spare{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

struct Pair {
  explicit Pair(const std::vector<torch::Tensor>& all)
      : muon({torch::optim::OptimizerParamGroup(of(all, true))}, MuonOptions(0.02)),
        adamw(of(all, false), torch::optim::AdamWOptions(0.01)) {}
  static std::vector<torch::Tensor> of(const std::vector<torch::Tensor>& all, bool matrices) {
    std::vector<torch::Tensor> some;
    for (const torch::Tensor& tensor : all)
      if ((tensor.dim() > 1) == matrices) some.push_back(tensor);
    return some;
  }
  std::unique_ptr<Optimizer> both() {
    std::vector<std::unique_ptr<Optimizer>> all;
    all.push_back(make_optimizer<Muon, MuonOptions, MuonState>(muon));
    all.push_back(make_optimizer(adamw));
    return make_optimizer(std::move(all));
  }
  Muon muon;
  torch::optim::AdamW adamw;
};

void backward(Net& net, int step, int rank, at::ScalarType type) {
  const Batch batch = rows(step, 2 * rank, 2, kFeatures);
  torch::mse_loss(net->forward(batch.inputs.to(type), step % 2 == 1), batch.targets.to(type)).backward();
}

std::vector<torch::Tensor> train_by_hand(int ranks, at::ScalarType type) {
  Net net(type);
  std::vector<torch::Tensor> parameters = net->parameters(), copies;
  for (const torch::Tensor& tensor : parameters)
    copies.push_back(tensor.detach().to(torch::kFloat32, false, true).requires_grad_());
  Pair pair(copies);
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<torch::Tensor> means =
        mean_gradients(parameters, ranks, [&](int rank) { backward(net, step, rank, type); });
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); ++i) copies[i].mutable_grad() = means[i];
    pair.muon.step();
    pair.adamw.step();
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(copies[i]);
  }
  return copies;
}

class Owned : public ::testing::TestWithParam<int> {};

TEST_P(Owned, MatricesAreThoseOfOneProcessToTheBit) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    const std::vector<torch::Tensor> expected = train_by_hand(GetParam(), type);
    for (const std::string policy : {"serial", "wfbp", "dear-replicated", "dear"}) {
      std::vector<torch::Tensor> found;
      run_all(GetParam(), [&](int rank, Group group) {
        Net net(type);
        Pair pair(net->parameters());
        DataParallel dp(model_of(*net), pair.both(), std::move(group),
                        {.policy = policy,
                         .buckets = given(Fusion::parse("layer")),
                         .fp32_masters = type != torch::kFloat32,
                         .ownership = Ownership::automatic});
        for (int step = 0; step < kSteps; ++step) {
          backward(net, step, rank, type);
          dp.step();
          if (step == 1) dp.regroup(Fusion::parse("all"));
          if (step == 2 && dp.has_state()) dp.load_optimizer_state(dp.optimizer_state());
        }
        dp.synchronize();
        const bool masters = type != torch::kFloat32;
        for (const auto& [parameter, state] : dp.optimizer_state())
          if (rank == 0)
            found.push_back((masters ? state->vectors.at("master_parameter") : parameter).clone());
      });
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(torch::equal(found[i], expected[i].detach()))
            << policy << ", " << c10::toString(type) << ", tensor " << i << ": "
            << (found[i] - expected[i]).abs().max().item<float>();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Owned, ::testing::Values(1, 2, 4),
                         [](const auto& info) { return "On" + std::to_string(info.param); });

TEST(Ownership, WhatCannotBeIsRefused) {
  const auto errors = run_each(groups_of(2), [](int, Group group) {
    Net net(torch::kFloat32);
    Pair pair(net->parameters());
    const auto refusal = [&](std::unique_ptr<Optimizer> optimizer, const std::string& policy,
                             Ownership ownership) {
      return message_of<ConfigError>([&] {
        DataParallel(model_of(*net), std::move(optimizer), group,
                     {.policy = policy,
                      .buckets = given(Fusion::parse("all")),
                      .updates = Updates::sharded,
                      .ownership = ownership});
      });
    };
    EXPECT_THAT(refusal(pair.both(), "dear", Ownership::cut),
                AllOf(HasSubstr("Muon"), HasSubstr("automatic")));
    Muon unknown({torch::optim::OptimizerParamGroup(net->parameters())}, MuonOptions(0.02));
    EXPECT_THAT(refusal(make_optimizer(unknown), "dear", Ownership::automatic), HasSubstr("class_access.h"));
    EXPECT_THAT(refusal(pair.both(), "dear-eager", Ownership::automatic), HasSubstr("dear-eager"));
    torch::optim::LBFGS lbfgs(net->parameters());
    EXPECT_THAT(refusal(make_optimizer(lbfgs), "dear", Ownership::automatic), HasSubstr("closure"));
    EXPECT_THAT(message_of<ConfigError>([&] {
                  DataParallel(model_of(*net), pair.both(), group,
                               {.buckets = given(Fusion::parse("all")),
                                .ownership = Ownership::automatic,
                                .update_cost = [](const auto&, const auto&) { return 0.0; }});
                }),
                HasSubstr("update_cost"));
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << train::testing::what_of(error);
}

TEST(Ownership, PaddingIsSaid) {
  run_all(2, [](int rank, Group group) {
    Net net(torch::kFloat32);
    Pair pair(net->parameters());
    DataParallel dp(model_of(*net), pair.both(), std::move(group),
                    {.buckets = given(Fusion::parse("all")), .ownership = Ownership::automatic});
    backward(net, 0, rank, torch::kFloat32);
    dp.step();
    // The matrices of 576 and 384 elements on two ranks, the two of 72 and all biases beside the smaller.
    EXPECT_LT(dp.statistics().padding_bytes, dp.statistics().parameter_bytes / 8);
    dp.synchronize();
  });
}

}  // namespace
}  // namespace dear::ownership_test
