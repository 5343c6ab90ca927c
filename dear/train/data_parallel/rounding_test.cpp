// Parameters in bf16 that are rounded stochastically.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::rounding_test {
namespace {

using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;

constexpr std::int64_t kFeatures = 16;

torch::nn::Sequential make_model() {
  torch::nn::Sequential model(torch::nn::Linear(kFeatures, 40), torch::nn::Linear(40, 3));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& tensor : model->parameters())
    tensor.copy_(0.2 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  model->to(torch::kBFloat16);
  return model;
}

DataParallelOptions options(const std::string& policy, bool masters) {
  return {.policy = policy,
          .buckets = given(Fusion::parse("layer")),
          .fp32_masters = masters,
          .stochastic_rounding = true};
}

std::vector<torch::Tensor> train(int ranks, const std::string& policy, bool masters) {
  std::vector<torch::Tensor> result;
  run_all(ranks, [&](int rank, Group group) {
    torch::nn::Sequential model = make_model();
    torch::optim::AdamW adamw(model->parameters(), torch::optim::AdamWOptions(1e-3));
    DataParallel dp(*model, adamw, std::move(group), options(policy, masters));
    for (int step = 0; step < 5; ++step) {
      // Every rank has the same rows, so that the mean does not depend on how many there are.
      const auto batch = rows(step, 0, 2, kFeatures);
      torch::mse_loss(model->forward(batch.inputs.to(torch::kBFloat16)), batch.targets.to(torch::kBFloat16))
          .backward();
      dp.step();
      if (step == 1) dp.regroup(Fusion::parse("all"));
    }
    dp.synchronize();
    for (const auto& [parameter, state] : dp.optimizer_state()) {
      EXPECT_EQ(state->vectors.at("exp_avg").scalar_type(), torch::kFloat32);
      EXPECT_EQ(state->vectors.count("master_parameter"), masters ? 1U : 0U);
      if (rank == 0) result.push_back(parameter.detach().clone());
    }
  });
  return result;
}

TEST(StochasticRoundingOfParameters, IsTheSameForEveryPolicyAndNumberOfRanks) {
  torch::manual_seed(17);
  for (const bool masters : {false, true}) {
    const std::vector<torch::Tensor> expected = train(1, "serial", masters);
    for (const int ranks : {2, 4}) {
      for (const std::string policy : {"serial", "wfbp", "dear-replicated", "dear", "dear-eager"}) {
        const std::vector<torch::Tensor> found = train(ranks, policy, masters);
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_TRUE(torch::equal(found[i], expected[i]))
              << ranks << " ranks, " << policy << ", tensor " << i;
      }
    }
  }
}

// A gradient of 1 and steps of a hundredth of the distance between two numbers of bf16.
torch::Tensor after_small_steps(bool stochastic) {
  torch::Tensor result;
  run_all(2, [&](int rank, Group group) {
    torch::Tensor parameter = torch::ones({4096}, torch::kBFloat16).requires_grad_();
    torch::optim::SGD sgd({parameter}, torch::optim::SGDOptions(1e-2 / 256));
    DataParallel dp(Model{.parameters = {{"parameter", parameter}}, .buffers = {}}, make_optimizer(sgd),
                    std::move(group),
                    {.buckets = given(Fusion::parse("all")), .stochastic_rounding = stochastic});
    for (int step = 0; step < 100; ++step) {
      parameter.sum().backward();
      dp.step();
    }
    dp.synchronize();
    if (rank == 0) result = parameter.detach().to(torch::kFloat64);
  });
  return result;
}

TEST(StochasticRoundingOfParameters, KeepsSmallStepsInTheMean) {
  torch::manual_seed(17);
  EXPECT_EQ(after_small_steps(false).mean().item<double>(), 1);
  EXPECT_NEAR(after_small_steps(true).mean().item<double>(), 1 - 1.0 / 256, 0.2 / 256);
}

TEST(StochasticRoundingOfParameters, IsTheChoiceOfAllRanks) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    torch::nn::Sequential model = make_model();
    torch::optim::AdamW adamw(model->parameters());
    EXPECT_THAT(message_of<MismatchError>([&] {
                  DataParallel(*model, adamw, std::move(group),
                               {.buckets = given(Fusion::parse("all")), .stochastic_rounding = rank == 0});
                }),
                HasSubstr("stochastic rounding"));
  });
  for (const auto& error : errors) EXPECT_FALSE(error);
}

}  // namespace
}  // namespace dear::rounding_test
