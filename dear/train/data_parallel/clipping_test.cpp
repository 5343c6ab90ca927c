// Gradients that are clipped, or of a scaled loss: as in one process on the union of the batches.

#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/data_parallel/testing/weights.h"

namespace dear::clipping_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::Batch;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::Weights;
using train::testing::what_of;

constexpr std::int64_t kFeatures = 13;
constexpr std::int64_t kRows = 2;  // of a rank
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// In double precision: a weight that is used twice, a layer that every other step leaves out, one that is
// frozen, and a parameter of one element.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(kFeatures, 17));
    twice = register_module("twice", torch::nn::Linear(17, 17));
    frozen = register_module("frozen", torch::nn::Linear(17, 17));
    spare = register_module("spare", torch::nn::Linear(17, 3));
    last = register_module("last", torch::nn::Linear(17, 3));
    shift = register_parameter("shift", torch::zeros({1}));
    to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& tensor : parameters())
      tensor.copy_(0.3 * torch::sin(torch::arange(tensor.numel(), torch::kFloat64)).view_as(tensor));
    for (torch::Tensor& tensor : frozen->parameters()) tensor.requires_grad_(false);
  }
  torch::Tensor forward(const torch::Tensor& inputs, bool with_spare) {
    torch::Tensor x = torch::tanh(first(inputs.to(torch::kFloat64)));
    x = frozen(torch::tanh(twice(torch::tanh(twice(x)))));
    return (with_spare ? last(x) + spare(x) : last(x)) + shift;
  }
  torch::nn::Linear first{nullptr}, twice{nullptr}, frozen{nullptr}, spare{nullptr}, last{nullptr};
  torch::Tensor shift;
};
TORCH_MODULE(Net);

// Two parameter groups, of matrices and of the rest.
torch::optim::AdamW make_optimizer_of(Net& net) {
  std::vector<torch::Tensor> matrices, rest;
  for (const torch::Tensor& tensor : net->parameters())
    if (tensor.requires_grad()) (tensor.dim() > 1 ? matrices : rest).push_back(tensor);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices);
  groups.emplace_back(rest);
  return torch::optim::AdamW(groups, torch::optim::AdamWOptions(0.01).weight_decay(0.1));
}

torch::Tensor loss_of(Net& net, int step, int first_rank, int ranks) {
  const Batch batch = rows(step, first_rank * kRows, ranks * kRows, kFeatures);
  return torch::mse_loss(net->forward(batch.inputs, step % 2 == 1), batch.targets.to(torch::kFloat64));
}

// What is done to gradients in a step.
struct Clip {
  double max_norm = kInfinity;
  double type = 2;
  double limit = kInfinity;
};

const std::vector<Clip>& clips() {
  static const std::vector<Clip> all = {{.max_norm = 0.1},
                                        {.max_norm = 0.2, .type = 1},
                                        {.max_norm = 1e-3, .type = kInfinity},
                                        {.max_norm = 0.02, .type = 3, .limit = 2e-3},
                                        {.max_norm = 1e9},
                                        {.max_norm = 0}};
  return all;
}

struct Result {
  std::vector<double> norms;
  std::vector<torch::Tensor> parameters;
};

Result train_plainly(int ranks) {
  Net net;
  torch::optim::AdamW adamw = make_optimizer_of(net);
  Result result;
  for (int step = 0; step < static_cast<int>(clips().size()); ++step) {
    adamw.zero_grad();
    loss_of(net, step, 0, ranks).backward();
    const Clip& clip = clips()[step];
    result.norms.push_back(torch::nn::utils::clip_grad_norm_(net->parameters(), clip.max_norm, clip.type));
    torch::nn::utils::clip_grad_value_(net->parameters(), clip.limit);
    adamw.step();
  }
  for (const torch::Tensor& tensor : net->parameters()) result.parameters.push_back(tensor.detach().clone());
  return result;
}

void expect_near(const Result& found, const Result& expected) {
  ASSERT_EQ(found.norms.size(), expected.norms.size());
  for (std::size_t i = 0; i < found.norms.size(); ++i)
    EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-10 * (1 + expected.norms[i])) << "step " << i;
  for (std::size_t i = 0; i < found.parameters.size(); ++i)
    EXPECT_TRUE(torch::allclose(found.parameters[i], expected.parameters[i], 1e-10, 1e-10)) << "tensor " << i;
}

struct Case {
  int ranks;
  std::string policy = "dear";
  bool one_copy = false;
  bool accumulate = false;
  bool record = false;
};

Result train(const Case& one) {
  std::vector<Result> results(one.ranks);
  run_all(one.ranks, [&](int rank, Group group) {
    Net net;
    torch::optim::AdamW adamw = make_optimizer_of(net);
    DataParallel dp(*net, adamw, std::move(group),
                    {.policy = one.policy,
                     .buckets = given(Fusion::parse("layer")),
                     .one_copy = one.one_copy,
                     .record_trace = one.record});
    for (int step = 0; step < static_cast<int>(clips().size()); ++step) {
      if (one.accumulate) {  // two halves, whose mean is the loss
        {
          const auto guard = dp.no_sync();
          (loss_of(net, step, rank, 1) / 2).backward();
        }
        (loss_of(net, step, rank, 1) / 2).backward();
      } else {
        loss_of(net, step, rank, 1).backward();
      }
      const Clip& clip = clips()[step];
      results[rank].norms.push_back(dp.clip_gradients_by_norm(clip.max_norm, {.type = clip.type}));
      if (std::isfinite(clip.limit)) dp.clip_gradients_by_value(clip.limit);
      dp.step();
      if (step == 2) dp.regroup(Fusion::parse("all"));
    }
    dp.synchronize();
    for (const torch::Tensor& tensor : net->parameters())
      results[rank].parameters.push_back(tensor.detach().clone());
  });
  for (const Result& result : results) EXPECT_EQ(result.norms, results[0].norms);
  return results[0];
}

class Clipping : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(Clipping, IsThatOfOneProcess) {
  const auto& [policy, ranks] = GetParam();
  const Result expected = train_plainly(ranks);
  expect_near(train({.ranks = ranks, .policy = policy}), expected);
  expect_near(train({.ranks = ranks, .policy = policy, .accumulate = true}), expected);
  expect_near(train({.ranks = ranks, .policy = policy, .record = true}), expected);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Clipping,
                         ::testing::Combine(::testing::Values("serial", "wfbp", "dear-replicated", "dear"),
                                            ::testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           std::erase(name, '-');
                           return name + "On" + std::to_string(std::get<1>(info.param));
                         });

TEST(OneCopyClipping, IsThatOfOneProcess) {
  for (const int ranks : {2, 3}) expect_near(train({.ranks = ranks, .one_copy = true}), train_plainly(ranks));
}

TEST(ClippingTest, ANormThatIsNotFiniteIsSeenByAllRanks) {
  run_all(2, [](int rank, Group group) {
    Weights model(group);
    for (const double bad : {kInfinity, std::nan("")}) {
      model.backward(rank == 1 ? bad : 1.0);
      EXPECT_FALSE(std::isfinite(model.dp.clip_gradients_by_norm(1)));
      model.dp.discard_step();
      model.backward(rank == 1 ? bad : 1.0);
      EXPECT_THAT(
          message_of<ConfigError>([&] { model.dp.clip_gradients_by_norm(1, {.error_if_nonfinite = true}); }),
          AllOf(HasSubstr("norm"), HasSubstr("rank " + std::to_string(rank))));
      model.dp.discard_step();
    }
    model.backward(1);
    EXPECT_DOUBLE_EQ(model.dp.clip_gradients_by_norm(kInfinity), std::sqrt(80.0));
    model.dp.step();
    EXPECT_TRUE(torch::equal(model.weights, torch::full({2, 40}, -1.0)));
  });
}

TEST(ClippingTest, WithoutGradientsTheNormIsZero) {
  run_all(2, [](int, Group group) {
    Weights model(group);
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(model.dp.clip_gradients_by_norm(1), 0);
      model.dp.step();
      EXPECT_TRUE(torch::equal(model.weights, torch::zeros({2, 40})));
      model.backward(0);
      model.dp.step();
    }
  });
}

TEST(ClippingTest, RefusesWhatCannotBe) {
  run_all(2, [](int, Group group) {
    Weights model(group);
    const auto refusal = [&](double max_norm, double type) {
      return message_of<ConfigError>([&] { model.dp.clip_gradients_by_norm(max_norm, {.type = type}); });
    };
    EXPECT_THAT(refusal(-1, 2), HasSubstr("-1"));
    EXPECT_THAT(refusal(std::nan(""), 2), HasSubstr("nan"));
    EXPECT_THAT(refusal(1, 0), HasSubstr("type 0"));
    EXPECT_THAT(message_of<ConfigError>([&] { model.dp.clip_gradients_by_value(-1); }), HasSubstr("-1"));
    EXPECT_THAT(message_of<ConfigError>([&] { model.dp.unscale_gradients(0); }), HasSubstr("0"));
    model.backward(1);  // nothing has happened
    model.dp.step();
  });
}

TEST(ClippingTest, IsRefusedWhereUpdatesComeBeforeIt) {
  for (const int ranks : {1, 2}) {
    run_all(ranks, [](int, Group group) {
      Weights eager(group, {.policy = "dear-eager", .buckets = given(Fusion())});
      EXPECT_THAT(message_of<ConfigError>([&] { eager.dp.clip_gradients_by_norm(1); }),
                  HasSubstr("dear-eager"));
      EXPECT_THAT(message_of<ConfigError>([&] { eager.dp.step({.loss_scale = 2}); }),
                  HasSubstr("dear-eager"));
    });
  }
  run_all(2, [](int, Group group) {
    Weights compressed(group, {.buckets = given(Fusion()), .compression = Compression::parse("bf16")});
    EXPECT_THAT(message_of<ConfigError>([&] { compressed.dp.clip_gradients_by_norm(1); }),
                HasSubstr("compress"));
  });
}

TEST(ClippingTest, AGradientThatComesAfterItIsRefused) {
  run_all(2, [](int rank, Group group) {
    Weights model(group);
    for (int step = 0; step < 2; ++step) {
      model.backward(1);
      model.dp.clip_gradients_by_norm(1);
      EXPECT_THAT(
          message_of<ConfigError>([&] { model.backward(1); }),
          AllOf(HasSubstr("rank " + std::to_string(rank)), HasSubstr("'weights'"), HasSubstr("clipped")));
      model.dp.discard_step();
      EXPECT_THAT(message_of<ConfigError>([&] {
                    model.dp.clip_gradients_by_norm(1);
                    model.dp.regroup(Fusion());
                  }),
                  HasSubstr("regroup"));
      model.dp.step();
    }
  });
}

TEST(ClippingTest, RanksThatCallDifferentlyAreToldSo) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    Weights model(group);
    model.backward(1);
    model.dp.clip_gradients_by_norm(rank == 0 ? 1 : 2);
  });
  for (const auto& error : errors)
    EXPECT_THAT(message_of<MismatchError>([&] { std::rethrow_exception(error); }),
                HasSubstr("rank 1 called"));
  for (const auto& error : run_each(groups_of(2), [](int rank, Group group) {
         Weights model(group);
         for (int step = 0; step < 3; ++step) {
           model.backward(1);
           if (rank == 0) model.dp.clip_gradients_by_value(1);
           model.dp.step();
         }
         model.dp.synchronize();
       }))
    EXPECT_TRUE(error) << "one rank clips, and nobody says so";
}

TEST(LossScale, ThatDiffersBetweenRanksIsAMismatch) {
  for (const auto& error : run_each(groups_of(2), [](int rank, Group group) {
         Weights model(group);
         model.backward(1);
         model.dp.step({.loss_scale = rank == 0 ? 2.0 : 4.0, .skip_nonfinite = false});
       }))
    EXPECT_THAT(message_of<MismatchError>([&] { std::rethrow_exception(error); }),
                HasSubstr("step() with loss scale 4"));
}

TEST(LossScale, LeavesNoTraceAndSkipsOnAllRanksAlike) {
  for (const std::string policy : {"serial", "wfbp", "dear-replicated", "dear"}) {
    for (const int ranks : {1, 2, 4}) {
      run_all(ranks, [&](int rank, Group group) {
        Weights plain(group.duplicate(), {.policy = policy, .buckets = given(Fusion())});
        Weights scaled(group, {.policy = policy, .buckets = given(Fusion())});
        double scale = 1024;
        for (int step = 0; step < 6; ++step) {
          plain.backward(0.1 * (rank + 1));
          plain.dp.step();
          if (step % 2 == 0) {  // an overflow on the last rank
            scaled.backward(rank == ranks - 1 ? kInfinity : scale);
            EXPECT_FALSE(scaled.dp.step({.loss_scale = scale})) << policy << " " << step;
            scale /= 2;
          }
          scaled.backward(0.1 * (rank + 1) * scale);
          EXPECT_TRUE(scaled.dp.step({.loss_scale = scale}));
          EXPECT_TRUE(torch::equal(plain.weights, scaled.weights)) << policy << " " << step;
        }
      });
    }
  }
}

TEST(LossScale, IsTakenAwayBeforeClipping) {
  run_all(2, [](int rank, Group group) {
    Weights model(group);
    model.backward(8.0 * (rank + 1));
    EXPECT_TRUE(model.dp.unscale_gradients(4));
    EXPECT_DOUBLE_EQ(model.dp.clip_gradients_by_norm(std::sqrt(80.0)), 3 * std::sqrt(80.0));
    model.dp.clip_gradients_by_value(0.5);
    EXPECT_TRUE(model.dp.step({.loss_scale = 0.25, .skip_nonfinite = false}));
    EXPECT_TRUE(torch::equal(model.weights, torch::full({2, 40}, -2.0)));
  });
}

}  // namespace
}  // namespace dear::clipping_test
