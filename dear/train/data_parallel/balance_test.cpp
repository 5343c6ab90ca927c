// Batches that are shared by the speeds of ranks: as in one process on all samples.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::balance_test {
namespace {

using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

constexpr std::int64_t kFeatures = 7, kBatch = 13;
constexpr int kSteps = 9;
const BucketChoice kBuckets = given(Fusion::parse("layer"));

torch::nn::Linear make_net() {
  torch::nn::Linear net(kFeatures, 5);
  net->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& tensor : net->parameters())
    tensor.copy_(0.3 * torch::sin(torch::arange(tensor.numel(), torch::kFloat64)).view_as(tensor));
  return net;
}

torch::optim::SGD sgd_of(torch::nn::Linear& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

torch::Tensor loss_of(torch::nn::Linear& net, int step, std::int64_t first, std::int64_t count) {
  const torch::Tensor all =
      torch::cos(torch::arange(kBatch * kFeatures, torch::kFloat64) * 0.7 + step).view({kBatch, kFeatures});
  return torch::tanh(net(all.narrow(0, first, count))).square().mean();
}

std::vector<torch::Tensor> train_alone() {
  torch::nn::Linear net = make_net();
  torch::optim::SGD sgd = sgd_of(net);
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    loss_of(net, step, 0, kBatch).backward();
    sgd.step();
  }
  return net->parameters();
}

std::vector<torch::Tensor> train_balanced(int rank, const Group& group, const DataParallelOptions& options) {
  torch::nn::Linear net = make_net();
  torch::optim::SGD sgd = sgd_of(net);
  DataParallel dp(*net, sgd, group, options);
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<std::int64_t> counts = dp.batch_shares().counts(kBatch, step);
    std::int64_t first = 0;
    for (int other = 0; other < rank; ++other) first += counts[static_cast<std::size_t>(other)];
    const std::int64_t mine = counts[static_cast<std::size_t>(rank)];
    dp.samples(mine);
    loss_of(net, step, first, mine).backward();
    dp.step();
    EXPECT_EQ(dp.batch_shares().steps(), step + 1);
  }
  dp.synchronize();
  return net->parameters();
}

void expect_near(const std::vector<torch::Tensor>& found, const std::vector<torch::Tensor>& expected) {
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_LE((found[i] - expected[i]).abs().max().item<double>(), 1e-12) << "tensor " << i;
}

TEST(BalancedTraining, IsThatOfOneProcessOnAllSamples) {
  const std::vector<torch::Tensor> expected = train_alone();
  for (const char* policy : {"serial", "wfbp", "dear-replicated", "dear", "dear-eager"})
    run_all(3, [&](int rank, const Group& group) {
      expect_near(
          train_balanced(rank, group,
                         {.policy = policy, .buckets = kBuckets, .balance = Balance{.weights = {1, 5, 2}}}),
          expected);
    });
}

// Whatever was measured, and however often shares change: every sample counts once.
TEST(BalancedTraining, WithMeasuredSharesIsThatOfOneProcess) {
  const std::vector<torch::Tensor> expected = train_alone();
  const Balance quick{.window = 1, .least_gain = 1, .ahead = 0};
  for (const int ranks : {1, 2, 3})
    run_all(ranks, [&](int rank, const Group& group) {
      expect_near(train_balanced(rank, group, {.buckets = kBuckets, .balance = quick}), expected);
    });
}

TEST(BalancedTraining, WithEqualSharesHasTheBitsOfTheMeanOverRanks) {
  run_all(2, [&](int rank, const Group& group) {
    const auto train = [&](std::optional<Balance> balance) {
      torch::nn::Linear net = make_net();
      net->to(torch::kFloat32);
      torch::optim::SGD sgd = sgd_of(net);
      DataParallel dp(*net, sgd, group.duplicate(),
                      {.buckets = given(Fusion::parse("all")), .balance = balance});
      for (int step = 0; step < kSteps; ++step) {
        if (balance) dp.samples(4);
        torch::tanh(
            net(torch::cos(torch::arange(4 * kFeatures, torch::kFloat32) + rank + step).view({4, kFeatures})))
            .square()
            .mean()
            .backward();
        dp.step();
      }
      dp.synchronize();
      return net->weight.detach().clone();
    };
    EXPECT_TRUE(torch::equal(train(std::nullopt), train(Balance{.weights = {2, 2}})));
  });
}

TEST(BalancedTraining, RefusesOnEveryRank) {
  const auto errors_of = [](const std::function<DataParallelOptions(int rank)>& options) {
    return run_each(groups_of(2), [&](int rank, const Group& group) {
      torch::nn::Linear net = make_net();
      torch::optim::SGD sgd = sgd_of(net);
      DataParallel dp(*net, sgd, group, options(rank));
      loss_of(net, 0, 0, 2).backward();
      dp.step();
    });
  };
  for (const auto& error : errors_of([](int rank) {
         return DataParallelOptions{.buckets = kBuckets,
                                    .balance = Balance{.weights = {1, rank == 0 ? 1.0 : -1.0}}};
       }))
    EXPECT_THAT(what_of(error), HasSubstr("-1 for rank 1"));
  for (const auto& error : errors_of([](int rank) {
         return DataParallelOptions{.buckets = kBuckets, .balance = Balance{.weights = {1, 1.0 + rank}}};
       }))
    EXPECT_THAT(what_of(error), HasSubstr("balance"));
  for (const auto& error : errors_of([](int) {
         return DataParallelOptions{.buckets = kBuckets, .balance = Balance{.weights = {1, 3}}};
       }))
    EXPECT_THAT(what_of(error), HasSubstr("does not say how many samples"));
  run_all(2, [](int, const Group& group) {
    torch::nn::Linear net = make_net();
    torch::optim::SGD sgd = sgd_of(net);
    const DataParallel dp(*net, sgd, group, {.buckets = kBuckets});
    EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(dp.batch_shares()); }),
                HasSubstr("give the training a balance"));
  });
}

}  // namespace
}  // namespace dear::balance_test
