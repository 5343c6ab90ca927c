// Parameters of 16 bits with fp32 masters: as one process that keeps fp32 copies itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/mean_gradients.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::masters_test {
namespace {

using train::testing::Batch;
using train::testing::groups_of;
using train::testing::mean_gradients;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;

constexpr std::int64_t kFeatures = 16;
constexpr int kSteps = 6;
constexpr int kWritten = 3;  // before this step the program writes into a parameter

torch::nn::Sequential make_model(at::ScalarType type) {
  torch::nn::Sequential model(torch::nn::Linear(kFeatures, 40), torch::nn::Tanh(), torch::nn::Linear(40, 3));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& tensor : model->parameters())
    tensor.copy_(0.2 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  model->to(type);
  return model;
}

torch::optim::AdamWOptions options() { return torch::optim::AdamWOptions(1e-4).weight_decay(0.1); }

void backward(torch::nn::Sequential& model, int step, int rank, at::ScalarType type) {
  const Batch batch = rows(step, 2 * rank, 2, kFeatures);
  torch::mse_loss(model->forward(batch.inputs.to(type)), batch.targets.to(type)).backward();
}

void write_into(torch::nn::Sequential& model) {
  const torch::NoGradGuard no_grad;
  model->parameters()[1].slice(0, 3, 9).fill_(0.25);
}

// Gradients are added in fp32 and rounded once, as DeAR adds them.
std::vector<torch::Tensor> train_by_hand(int ranks, at::ScalarType type) {
  torch::nn::Sequential model = make_model(type);
  std::vector<torch::Tensor> parameters = model->parameters(), masters;
  for (const torch::Tensor& tensor : parameters) masters.push_back(tensor.detach().to(torch::kFloat32));
  torch::optim::AdamW adamw(masters, options());
  for (int step = 0; step < kSteps; ++step) {
    if (step == kWritten) {
      write_into(model);
      masters[1].slice(0, 3, 9).fill_(0.25);
    }
    const std::vector<torch::Tensor> means =
        mean_gradients(parameters, ranks, [&](int rank) { backward(model, step, rank, type); });
    for (std::size_t i = 0; i < masters.size(); ++i) masters[i].mutable_grad() = means[i];
    adamw.step();
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(masters[i]);
  }
  return masters;
}

// The parameters in the end, and the masters.
std::vector<torch::Tensor> train(int ranks, const std::string& policy, at::ScalarType type) {
  std::vector<torch::Tensor> masters;
  run_all(ranks, [&](int rank, Group group) {
    torch::nn::Sequential model = make_model(type);
    torch::optim::AdamW adamw(model->parameters(), options());
    DataParallel dp(*model, adamw, std::move(group),
                    {.policy = policy, .buckets = given(Fusion::parse("layer")), .fp32_masters = true});
    for (int step = 0; step < kSteps; ++step) {
      if (step == kWritten) write_into(model);
      backward(model, step, rank, type);
      dp.step();
      if (step == 1) dp.regroup(Fusion::parse("all"));
    }
    dp.synchronize();
    for (const auto& [parameter, state] : dp.optimizer_state()) {
      const torch::Tensor& master = state->vectors.at("master_parameter");
      EXPECT_TRUE(torch::equal(parameter, master.to(type)));
      EXPECT_EQ(state->vectors.at("exp_avg").scalar_type(), torch::kFloat32);
      if (rank == 0) masters.push_back(master.clone());
    }
  });
  return masters;
}

class MastersOf : public ::testing::TestWithParam<int> {};

TEST_P(MastersOf, AreThoseOfOneProcessToTheBit) {
  for (const at::ScalarType type : {torch::kBFloat16, torch::kHalf}) {
    const std::vector<torch::Tensor> expected = train_by_hand(GetParam(), type);
    for (const std::string policy : {"serial", "wfbp", "dear-replicated", "dear", "dear-eager"}) {
      const std::vector<torch::Tensor> found = train(GetParam(), policy, type);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(torch::equal(found[i], expected[i]))
            << policy << ", " << c10::toString(type) << ", tensor " << i << ": "
            << (found[i] - expected[i]).abs().max().item<float>();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, MastersOf, ::testing::Values(1, 2, 4),
                         [](const auto& info) { return "On" + std::to_string(info.param); });

// Steps of 1e-4 are lost beside a weight of 1 in bf16, whose neighbours are 1 - 2^-8 and 1 + 2^-7.
TEST(Masters, KeepStepsThatAreTooSmallForTheParameter) {
  run_all(2, [](int, Group group) {
    for (const bool with : {false, true}) {
      torch::Tensor weights = torch::ones({40}, torch::dtype(torch::kBFloat16).requires_grad(true));
      torch::optim::SGD sgd({weights}, torch::optim::SGDOptions(1e-4));
      DataParallel dp(Model{.parameters = {{"weights", weights}}, .buffers = {}}, make_optimizer(sgd),
                      group.duplicate(), {.buckets = given(Fusion()), .fp32_masters = with});
      for (int step = 0; step < 60; ++step) {
        weights.sum().backward();
        dp.step();
      }
      EXPECT_EQ(torch::equal(weights, torch::ones_like(weights)), !with);
    }
  });
}

TEST(Masters, AreTheChoiceOfAllRanks) {
  for (const auto& error : run_each(groups_of(2), [](int rank, Group group) {
         torch::nn::Sequential model = make_model(torch::kBFloat16);
         torch::optim::AdamW adamw(model->parameters(), options());
         const DataParallel dp(*model, adamw, std::move(group),
                               {.buckets = given(Fusion()), .fp32_masters = rank == 1});
       }))
    EXPECT_THAT(message_of<MismatchError>([&] { std::rethrow_exception(error); }),
                ::testing::HasSubstr("masters"));
}

}  // namespace
}  // namespace dear::masters_test
