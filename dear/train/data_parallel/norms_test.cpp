// LAMB and LARS, whose updates take norms of whole tensors: the bits of one process, on shards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/mean_gradients.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/optim/lamb.h"
#include "dear/train/optim/lars.h"

namespace dear::norms_test {
namespace {

using ::testing::HasSubstr;
using train::testing::Batch;
using train::testing::groups_of;
using train::testing::mean_gradients;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;

constexpr std::int64_t kFeatures = 16;
constexpr int kSteps = 6;
constexpr double kLimit = 0.02;     // of gradients in step 2
constexpr double kLossScale = 256;  // in step 3

// Every other step leaves a layer out.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(at::ScalarType type) {
    first = register_module("first", torch::nn::Linear(kFeatures, 40));
    spare = register_module("spare", torch::nn::Linear(40, 3));
    last = register_module("last", torch::nn::Linear(40, 3));
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& tensor : parameters())
      tensor.copy_(0.3 * torch::sin(torch::arange(1, tensor.numel() + 1, torch::kFloat32)).view_as(tensor));
    to(type);
  }
  torch::Tensor forward(const torch::Tensor& inputs, bool with_spare) {
    const torch::Tensor x = torch::tanh(first(inputs));
    return with_spare ? last(x) + spare(x) : last(x);
  }
  torch::nn::Linear first{nullptr}, spare{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

using Make = std::function<std::unique_ptr<TensorNormOptimizer>(std::vector<torch::Tensor> matrices,
                                                                std::vector<torch::Tensor> rest)>;

template <typename Optimizer, typename Options>
std::unique_ptr<TensorNormOptimizer> in_groups(std::vector<torch::Tensor> matrices,
                                               std::vector<torch::Tensor> rest, const Options& options) {
  Options of_rest = options;
  of_rest.adapt(false).weight_decay(0);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::move(matrices));
  groups.emplace_back(std::move(rest), std::make_unique<Options>(of_rest));
  return std::make_unique<Optimizer>(groups, options);
}

const std::vector<Make>& optimizers() {
  static const std::vector<Make> all = {
      [](auto matrices, auto rest) {
        return in_groups<LAMB>(std::move(matrices), std::move(rest), LAMBOptions(0.02).weight_decay(0.1));
      },
      [](auto matrices, auto rest) {
        return in_groups<LARS>(std::move(matrices), std::move(rest),
                               LARSOptions(0.5).trust_coefficient(0.05).weight_decay(0.1).nesterov(true));
      }};
  return all;
}

std::unique_ptr<TensorNormOptimizer> make(const Make& make, const std::vector<torch::Tensor>& all) {
  std::vector<torch::Tensor> matrices, rest;
  for (const torch::Tensor& tensor : all) (tensor.dim() > 1 ? matrices : rest).push_back(tensor);
  return make(std::move(matrices), std::move(rest));
}

void backward(Net& net, int step, int rank, at::ScalarType type) {
  const Batch batch = rows(step, 2 * rank, 2, kFeatures);
  const torch::Tensor loss =
      torch::mse_loss(net->forward(batch.inputs.to(type), step % 2 == 1), batch.targets.to(type));
  (step == 3 ? loss * kLossScale : loss).backward();
}

// With fp32 copies of what is updated, where the type is another. Gradients are added rank by rank, as DeAR
// adds them.
std::vector<torch::Tensor> train_by_hand(const Make& optimizer, int ranks, at::ScalarType type) {
  Net net(type);
  std::vector<torch::Tensor> parameters = net->parameters(), copies;
  for (const torch::Tensor& tensor : parameters)
    copies.push_back(tensor.detach().to(torch::kFloat32, false, true).requires_grad_());
  const auto updated = make(optimizer, copies);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<torch::Tensor> means =
        mean_gradients(parameters, ranks, [&](int rank) { backward(net, step, rank, type); });
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      copies[i].mutable_grad() = means[i];
      if (!means[i].defined()) continue;
      torch::Tensor mean = means[i].to(type);
      if (step == 2) mean.clamp_(-kLimit, kLimit);
      if (step == 3) mean.div_(kLossScale);
      copies[i].mutable_grad() = mean.to(torch::kFloat32);
    }
    updated->step();
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(copies[i]);
  }
  return copies;
}

std::vector<torch::Tensor> train(const Make& optimizer, int ranks, const std::string& policy,
                                 at::ScalarType type) {
  std::vector<torch::Tensor> result;
  run_all(ranks, [&](int rank, Group group) {
    Net net(type);
    const auto updated = make(optimizer, net->parameters());
    DataParallel dp(*net, *updated, std::move(group),
                    {.policy = policy,
                     .buckets = given(Fusion::parse("layer")),
                     .fp32_masters = type != torch::kFloat32});
    for (int step = 0; step < kSteps; ++step) {
      backward(net, step, rank, type);
      if (step == 2) dp.clip_gradients_by_value(kLimit);
      if (step == 3) {
        EXPECT_TRUE(dp.step({.loss_scale = kLossScale}));
      } else {
        dp.step();
      }
      if (step == 1) dp.regroup(Fusion::parse("all"));
    }
    dp.synchronize();
    for (const auto& [parameter, state] : dp.optimizer_state()) {
      const bool master = type != torch::kFloat32;
      if (rank == 0) result.push_back((master ? state->vectors.at("master_parameter") : parameter).clone());
    }
  });
  return result;
}

class NormsOn : public ::testing::TestWithParam<int> {};

TEST_P(NormsOn, AreThoseOfOneProcessToTheBit) {
  for (const Make& optimizer : optimizers()) {
    for (const at::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
      const std::vector<torch::Tensor> expected = train_by_hand(optimizer, GetParam(), type);
      for (const std::string policy : {"serial", "wfbp", "dear-replicated", "dear"}) {
        const std::vector<torch::Tensor> found = train(optimizer, GetParam(), policy, type);
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(torch::equal(found[i], expected[i].detach()))
              << policy << ", " << c10::toString(type) << ", tensor " << i << ": "
              << (found[i] - expected[i]).abs().max().item<float>();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NormsOn, ::testing::Values(1, 2, 4),
                         [](const auto& info) { return "On" + std::to_string(info.param); });

TEST(Norms, StateMovesFromOneTrainingToAnother) {
  const Make& lamb = optimizers().front();
  const std::vector<torch::Tensor> expected = train(lamb, 2, "dear", torch::kFloat32);
  std::vector<torch::Tensor> found;
  run_all(2, [&](int rank, Group group) {
    Net net(torch::kFloat32);
    const auto updated = make(lamb, net->parameters());
    DataParallel dp(*net, *updated, std::move(group), {.buckets = given(Fusion::parse("all"))});
    std::vector<DataParallel::StateOfParameter> states;
    for (int step = 0; step < kSteps; ++step) {
      backward(net, step, rank, torch::kFloat32);
      if (step == 2) dp.clip_gradients_by_value(kLimit);
      step == 3 ? static_cast<void>(dp.step({.loss_scale = kLossScale})) : dp.step();
      states = dp.optimizer_state();
      dp.load_optimizer_state(states);
    }
    EXPECT_EQ(states.front().state->vectors.count("exp_avg_sq"), 1U);
    dp.synchronize();
    if (rank == 0)
      for (const torch::Tensor& tensor : net->parameters()) found.push_back(tensor.detach().clone());
  });
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(torch::equal(found[i], expected[i].detach()));
}

// LAMB for matrices, AdamW for the rest.
TEST(Norms, OfOneOptimizerBesideAnother) {
  const auto split = [](const std::vector<torch::Tensor>& all, bool matrices) {
    std::vector<torch::Tensor> some;
    for (const torch::Tensor& tensor : all)
      if ((tensor.dim() > 1) == matrices) some.push_back(tensor);
    return some;
  };
  Net alone(torch::kFloat32);
  LAMB lamb_alone(split(alone->parameters(), true), LAMBOptions(0.02));
  torch::optim::AdamW adamw_alone(split(alone->parameters(), false));
  for (int step = 0; step < 3; ++step) {
    alone->zero_grad();
    backward(alone, step, 0, torch::kFloat32);
    lamb_alone.step();
    adamw_alone.step();
  }
  run_all(2, [&](int /*rank*/, Group group) {
    Net net(torch::kFloat32);
    LAMB lamb(split(net->parameters(), true), LAMBOptions(0.02));
    torch::optim::AdamW adamw(split(net->parameters(), false));
    std::vector<std::unique_ptr<Optimizer>> both;
    both.push_back(make_optimizer(lamb));
    both.push_back(make_optimizer(adamw));
    DataParallel dp(model_of(*net), make_optimizer(std::move(both)), std::move(group),
                    {.buckets = given(Fusion::parse("all"))});
    for (int step = 0; step < 3; ++step) {
      backward(net, step, 0, torch::kFloat32);  // the same on both ranks
      dp.step();
    }
    dp.synchronize();
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      EXPECT_TRUE(torch::equal(net->parameters()[i], alone->parameters()[i])) << i;
  });
}

// May fail in the first half of its second update, where the other rank waits for norms.
class Failing : public LAMB {
 public:
  Failing(const Groups& groups, bool fails) : LAMB(groups), fails_(fails) {}
  std::vector<torch::Tensor> propose(const torch::Tensor& part, const torch::optim::OptimizerOptions& options,
                                     TensorNormState& state) override {
    if (fails_ && state.step == 1) throw std::runtime_error("no memory for an update");
    return LAMB::propose(part, options, state);
  }
  [[nodiscard]] std::unique_ptr<TensorNormOptimizer> make_like(Groups groups) const override {
    return std::make_unique<Failing>(groups, fails_);
  }

 private:
  bool fails_;
};

TEST(Norms, AnErrorOfOneRankEndsAll) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    Net net(torch::kFloat32);
    Failing lamb({torch::optim::OptimizerParamGroup(net->parameters())}, rank == 1);
    DataParallel dp(*net, lamb, std::move(group), {.buckets = given(Fusion::parse("all"))});
    for (int step = 0; step < 3; ++step) {
      backward(net, step, rank, torch::kFloat32);
      dp.step();
      dp.synchronize();
    }
  });
  for (const auto& error : errors)
    EXPECT_THAT(train::testing::what_of(error), HasSubstr("no memory for an update"));
}

TEST(Norms, AreRefusedWhereUpdatesAreInTheBackwardPass) {
  const auto errors = run_each(groups_of(2), [](int, Group group) {
    Net net(torch::kFloat32);
    LAMB lamb(net->parameters());
    EXPECT_THAT(message_of<ConfigError>([&] {
                  DataParallel(*net, lamb, group,
                               {.policy = "dear-eager", .buckets = given(Fusion::parse("all"))});
                }),
                HasSubstr("dear-eager"));
  });
  for (const auto& error : errors) EXPECT_FALSE(error);
}

}  // namespace
}  // namespace dear::norms_test
