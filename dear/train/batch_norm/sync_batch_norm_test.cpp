// Batch normalisation over the samples of all ranks: that of the union of the batches.

#include "dear/train/batch_norm/sync_batch_norm.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::sync_batch_norm_test {
namespace {

using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

constexpr std::int64_t kChannels = 3;

struct Case {
  std::string name;
  std::vector<std::int64_t> shape;  // of a sample, the channel first
  at::ScalarType type = at::kFloat;
  SyncBatchNormOptions options{};
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  bool same_type = false;  // weights are of the input's type
};

std::vector<Case> cases() {
  return {{.name = "TwoDimensions", .shape = {kChannels}},
          {.name = "Three", .shape = {kChannels, 5}},
          {.name = "Four", .shape = {kChannels, 4, 5}},
          {.name = "Five", .shape = {kChannels, 2, 3, 4}},
          {.name = "ChannelsLast", .shape = {kChannels, 4, 5}, .format = at::MemoryFormat::ChannelsLast},
          {.name = "Double", .shape = {kChannels, 4}, .type = at::kDouble, .same_type = true},
          {.name = "Half", .shape = {kChannels, 4}, .type = at::kHalf},
          {.name = "BFloat16", .shape = {kChannels, 4}, .type = at::kBFloat16},
          {.name = "AllBFloat16", .shape = {kChannels, 4}, .type = at::kBFloat16, .same_type = true},
          {.name = "MomentumNone", .shape = {kChannels, 4}, .options = {.momentum = std::nullopt}},
          {.name = "NotAffine", .shape = {kChannels, 4}, .options = {.affine = false}},
          {.name = "NotTracking", .shape = {kChannels, 4}, .options = {.track_running_stats = false}}};
}

torch::Tensor samples(const Case& one, int step, int rank, int count) {
  std::vector<std::int64_t> shape = one.shape;
  shape.insert(shape.begin(), count);
  torch::Tensor all = torch::empty(shape, torch::kDouble);
  all.copy_(torch::sin(torch::arange(all.numel(), torch::kDouble) * 1.7 + 5 * rank + step).view(shape) * 3 +
            20);
  return all.to(one.type).contiguous(one.format);
}

struct Result {
  torch::Tensor output, of_input, of_weight, of_bias, mean, variance, evaluated;
};

// The loss is weighted, so that the gradient differs between elements.
template <typename Norm>
Result run(Norm& norm, const Case& one, const torch::Tensor& batch, const torch::Tensor& weights) {
  torch::Tensor input = batch.clone(one.format).requires_grad_();
  norm->train();
  const torch::Tensor output = norm->forward(input);
  (output.to(at::kDouble).pow(2) * weights).sum().backward();
  Result result{.output = output.detach(), .of_input = input.grad()};
  if (one.options.affine) {
    result.of_weight = norm->weight.grad();
    result.of_bias = norm->bias.grad();
  }
  if (one.options.track_running_stats) {
    result.mean = norm->running_mean.clone();
    result.variance = norm->running_var.clone();
    norm->eval();
    result.evaluated = norm->forward(batch).detach();
  }
  return result;
}

void expect_near(const torch::Tensor& found, const torch::Tensor& expected, double tolerance,
                 const char* what) {
  ASSERT_EQ(found.defined(), expected.defined()) << what;
  if (!found.defined()) return;
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(torch::allclose(found.to(at::kDouble), expected.to(at::kDouble), tolerance, tolerance))
      << what << " differs by "
      << (found.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
}

class SyncBatchNormOf : public ::testing::TestWithParam<std::tuple<Case, int>> {};

// Rank r has 2 r samples in the first batch, so rank 0 has none, and two more in the second one.
TEST_P(SyncBatchNormOf, IsThatOfTheUnion) {
  const auto& [one, ranks] = GetParam();
  const auto count_of = [](int step, int rank) { return 2 * rank + 2 * step; };
  torch::nn::BatchNorm3d plain(torch::nn::BatchNormOptions(kChannels)
                                   .momentum(one.options.momentum)
                                   .affine(one.options.affine)
                                   .track_running_stats(one.options.track_running_stats));
  // Of any number of dimensions.
  struct Any : torch::nn::BatchNorm3dImpl {
    using BatchNorm3dImpl::BatchNorm3dImpl;
    void _check_input_dim(const torch::Tensor& /*input*/) override {}
  };
  auto alone = std::make_shared<Any>(plain->options);
  if (one.same_type) alone->to(one.type);
  std::vector<std::vector<Result>> of_ranks(ranks);
  run_all(ranks, [&](int rank, Group group) {
    SyncBatchNorm norm(kChannels, NormGroup(group), one.options);
    if (one.same_type) norm->to(one.type);
    for (int step = 0; step < 2; ++step) {
      norm->zero_grad();
      const torch::Tensor batch = samples(one, step, rank, count_of(step, rank) + (ranks == 1 ? 2 : 0));
      of_ranks[rank].push_back(run(norm, one, batch, torch::cos(batch.to(at::kDouble))));
    }
  });
  const bool narrow = one.type == at::kHalf || one.type == at::kBFloat16;
  const double tolerance = one.type == at::kDouble ? 1e-11 : narrow ? 0.06 : 2e-5;
  for (int step = 0; step < 2; ++step) {
    alone->zero_grad();
    std::vector<torch::Tensor> batches, outputs, of_inputs, evaluated;
    torch::Tensor of_weight, of_bias;
    for (int rank = 0; rank < ranks; ++rank) {
      batches.push_back(samples(one, step, rank, count_of(step, rank) + (ranks == 1 ? 2 : 0)));
      const Result& found = of_ranks[rank][step];
      outputs.push_back(found.output);
      of_inputs.push_back(found.of_input);
      if (found.evaluated.defined()) evaluated.push_back(found.evaluated);
      if (!found.of_weight.defined()) continue;
      of_weight = rank == 0 ? found.of_weight.clone() : of_weight + found.of_weight;
      of_bias = rank == 0 ? found.of_bias.clone() : of_bias + found.of_bias;
    }
    const torch::Tensor batch = torch::cat(batches);
    const Result expected = run(alone, one, batch, torch::cos(batch.to(at::kDouble)));
    expect_near(torch::cat(outputs), expected.output, tolerance, "output");
    expect_near(torch::cat(of_inputs), expected.of_input, 20 * tolerance, "gradient of the input");
    expect_near(of_weight, expected.of_weight, 50 * tolerance, "gradient of the weight");
    expect_near(of_bias, expected.of_bias, 50 * tolerance, "gradient of the bias");
    if (evaluated.empty()) continue;
    expect_near(torch::cat(evaluated), expected.evaluated, tolerance, "output in evaluation");
    for (const auto& found : of_ranks) {
      expect_near(found[step].mean, expected.mean, 20 * tolerance, "running mean");
      expect_near(found[step].variance, expected.variance, 20 * tolerance, "running variance");
      EXPECT_TRUE(torch::equal(found[step].mean, of_ranks[0][step].mean));
      EXPECT_TRUE(torch::equal(found[step].variance, of_ranks[0][step].variance));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, SyncBatchNormOf,
                         ::testing::Combine(::testing::ValuesIn(cases()), ::testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "On" +
                                  std::to_string(std::get<1>(info.param));
                         });

// Convolutions with normalisation, trained beside the collectives of a DataParallel.
std::vector<torch::Tensor> train(int ranks, const std::string& policy) {
  std::vector<std::vector<torch::Tensor>> results(ranks);
  run_all(ranks, [&](int rank, Group group) {
    const NormGroup norms(group);
    torch::nn::Sequential net(
        torch::nn::Conv2d(torch::nn::Conv2dOptions(2, kChannels, 3)), SyncBatchNorm(kChannels, norms),
        torch::nn::Conv2d(torch::nn::Conv2dOptions(kChannels, 4, 3)), SyncBatchNorm(4, norms));
    for (torch::Tensor& tensor : net->parameters())
      tensor.detach().copy_(torch::sin(torch::arange(1, 1 + tensor.numel())).view_as(tensor) * 0.5);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    DataParallel dp(*net, sgd, group, {.policy = policy, .buckets = given(Fusion::parse("layer"))});
    for (int step = 0; step < 4; ++step) {
      const Case one{.shape = {2, 8, 8}};
      std::vector<torch::Tensor> union_of;
      for (int part = 0; part < 4; ++part)
        if (part * ranks / 4 == rank) union_of.push_back(samples(one, step, part, 2) / 10);
      const torch::Tensor batch = torch::cat(union_of);
      net->forward(batch).sin().mean().backward();
      dp.step();
    }
    dp.synchronize();
    for (const torch::Tensor& tensor : net->parameters()) results[rank].push_back(tensor.detach().clone());
    for (const torch::Tensor& tensor : net->buffers()) results[rank].push_back(tensor.clone());
  });
  for (const auto& result : results)
    for (std::size_t i = 0; i < result.size(); ++i) EXPECT_TRUE(torch::equal(result[i], results[0][i])) << i;
  return results[0];
}

TEST(SyncBatchNormTest, TrainsBesideDataParallelAsOneProcess) {
  const std::vector<torch::Tensor> expected = train(1, "dear");
  for (const char* policy : {"dear", "dear-eager", "wfbp"}) {
    const std::vector<torch::Tensor> found = train(4, policy);
    const std::vector<torch::Tensor> again = train(4, policy);
    for (std::size_t i = 0; i < found.size(); ++i) {
      expect_near(found[i], expected[i], 1e-4, "tensor");
      EXPECT_TRUE(torch::equal(found[i], again[i])) << i;
    }
  }
}

TEST(SyncBatchNormTest, RefusesWhatCannotBe) {
  run_all(2, [](int rank, Group group) {
    SyncBatchNorm norm(kChannels, NormGroup(group));
    const std::string me = "rank " + std::to_string(rank);
    EXPECT_THAT(message_of<ConfigError>([&] { norm->forward(torch::ones({3})); }), HasSubstr(me));
    EXPECT_THAT(message_of<ConfigError>([&] { norm->forward(torch::ones({2, 4})); }), HasSubstr("got 4"));
    EXPECT_THAT(message_of<ConfigError>([&] { norm->forward(torch::ones({2, kChannels}, torch::kLong)); }),
                HasSubstr("Long"));
    // One sample of both ranks.
    EXPECT_THAT(message_of<ConfigError>([&] { norm->forward(torch::ones({rank, kChannels})); }),
                HasSubstr("one value"));
    const torch::Tensor input = torch::ones({2, kChannels}, torch::requires_grad());
    const torch::Tensor output = norm->forward(input).sum();
    EXPECT_THAT(message_of<ConfigError>([&] { torch::autograd::grad({output}, {input}, {}, true, true); }),
                HasSubstr("second derivative"));
    norm->forward(torch::ones({0, kChannels}, torch::requires_grad())).sum().backward();  // no sample at all
    norm->eval();
    EXPECT_EQ(norm->forward(torch::ones({1, kChannels})).numel(), kChannels);
  });
}

TEST(SyncBatchNormTest, RanksWithOtherChannelsAreToldSo) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    SyncBatchNorm norm(8 + 80 * rank, NormGroup(group));
    norm->forward(torch::ones({2, 8 + 80 * rank}));
  });
  for (const auto& error : errors) EXPECT_NE(what_of(error), "");
}

}  // namespace
}  // namespace dear::sync_batch_norm_test
