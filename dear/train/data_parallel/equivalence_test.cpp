// Training with any schedule gives what synchronous SGD gives.

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::equivalence_test {
namespace {

using train::testing::Batch;
using train::testing::rows;
using train::testing::run_all;

constexpr std::int64_t kFeatures = 24;

// Layers of unequal size, a normalisation, and one beyond 1 MiB so that sizes of buckets matter.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(kFeatures, 300));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({300})));
    wide = register_module("wide", torch::nn::Linear(300, 900));
    narrow = register_module("narrow", torch::nn::Linear(900, 33));
    last = register_module("last", torch::nn::Linear(33, 3));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = norm(torch::tanh(first(x)));
    return last(torch::tanh(narrow(torch::relu(wide(x)))));
  }
  torch::nn::Linear first{nullptr}, wide{nullptr}, narrow{nullptr}, last{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Net);

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(Net&)>;

// Two parameter groups with options of their own, whose tensors alternate in the model.
std::vector<torch::optim::OptimizerParamGroup> two_groups(Net& net) {
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> rest;
  for (const auto& item : net->named_parameters()) {
    (item.value().dim() > 1 ? weights : rest).push_back(item.value());
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(weights);
  groups.emplace_back(rest);
  return groups;
}

template <typename O, typename Options>
MakeOptimizer with_two_groups(Options options) {
  return [options](Net& net) -> std::unique_ptr<torch::optim::Optimizer> {
    auto groups = two_groups(net);
    groups[0].set_options(std::make_unique<Options>(options));
    auto rest = std::make_unique<Options>(options);
    rest->weight_decay(0).lr(options.lr() * 0.5);
    groups[1].set_options(std::move(rest));
    return std::make_unique<O>(groups, options);
  };
}

const std::vector<std::pair<std::string, MakeOptimizer>>& optimizers() {
  namespace o = torch::optim;
  static const std::vector<std::pair<std::string, MakeOptimizer>> all = {
      {"SgdMomentum", with_two_groups<o::SGD>(o::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3))},
      {"SgdNesterov", with_two_groups<o::SGD>(o::SGDOptions(0.05).momentum(0.8).nesterov(true))},
      {"Adam", with_two_groups<o::Adam>(o::AdamOptions(2e-3).weight_decay(1e-3).amsgrad(true))},
      {"AdamW", with_two_groups<o::AdamW>(o::AdamWOptions(2e-3).weight_decay(1e-2))},
      {"RmsProp",
       with_two_groups<o::RMSprop>(o::RMSpropOptions(1e-3).eps(1e-2).momentum(0.5).centered(true))},
      {"Adagrad", with_two_groups<o::Adagrad>(o::AdagradOptions(1e-2).weight_decay(1e-3))},
  };
  return all;
}

Net fresh_net(std::uint64_t seed) {
  torch::manual_seed(seed);
  return Net();
}

struct Training {
  int ranks = 1;
  std::int64_t batch = 2;
  int steps = 5;
  std::string policy = "dear";
  std::string fusion = "25MiB";
  bool planned = false;
  bool one_copy = false;
  std::map<int, std::string> regroup = {};  // after so many steps, to this fusion
};

// Rank 0's parameters in the end; every rank's digest is checked against them.
std::string train_digest(const Training& run, const MakeOptimizer& make,
                         std::vector<torch::Tensor>* parameters = nullptr) {
  std::vector<Net> nets;
  for (int rank = 0; rank < run.ranks; ++rank) nets.push_back(fresh_net(rank == 0 ? 5 : 100 + rank));
  std::vector<std::string> digests(run.ranks);
  run_all(run.ranks, [&](int rank, Group group) {
    Net& net = nets[rank];
    const auto optimizer = make(net);
    DataParallel dp(
        *net, *optimizer, group,
        {.policy = run.policy,
         .buckets = run.planned ? planned(Fusion::parse(run.fusion)) : given(Fusion::parse(run.fusion)),
         .one_copy = run.one_copy,
         .profile_steps = 2});
    for (int step = 0; step < run.steps; ++step) {
      const Batch batch = rows(step, rank * run.batch, run.batch, kFeatures);
      torch::mse_loss(net->forward(batch.inputs), batch.targets).backward();
      dp.step();
      if (const auto found = run.regroup.find(step + 1); found != run.regroup.end())
        dp.regroup(Fusion::parse(found->second));
    }
    EXPECT_EQ(dp.statistics().iterations, run.steps);
    digests[rank] = parameter_digest(*net);
  });
  for (const std::string& digest : digests) EXPECT_EQ(digest, digests[0]);
  if (parameters) {
    for (const auto& tensor : nets[0]->parameters()) parameters->push_back(tensor.detach().clone());
  }
  return digests[0];
}

class SameDigest : public ::testing::TestWithParam<std::tuple<int, std::size_t>> {};

TEST_P(SameDigest, ForEveryPolicyAndGrouping) {
  const auto [ranks, index] = GetParam();
  const auto& [name, make] = optimizers()[index];
  const std::string expected = train_digest({.ranks = ranks, .policy = "serial", .fusion = "all"}, make);
  for (const Policy& policy : training_policies()) {
    for (const std::string fusion : {"layer", "1MiB", "first=64KiB,1MiB", "25MiB", "all"}) {
      const Training run{.ranks = ranks, .policy = std::string(policy.name), .fusion = fusion};
      EXPECT_EQ(train_digest(run, make), expected)
          << name << ", " << ranks << " ranks, " << policy.name << ", " << fusion;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SameDigest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values(0, 3)),
                         [](const auto& info) {
                           return optimizers()[std::get<1>(info.param)].first + "On" +
                                  std::to_string(std::get<0>(info.param));
                         });
INSTANTIATE_TEST_SUITE_P(Optimisers, SameDigest,
                         ::testing::Combine(::testing::Values(3), ::testing::Values(1, 2, 4, 5)),
                         [](const auto& info) {
                           return optimizers()[std::get<1>(info.param)].first + "On" +
                                  std::to_string(std::get<0>(info.param));
                         });

class OneCopy : public ::testing::TestWithParam<std::tuple<int, std::size_t>> {};

TEST_P(OneCopy, ChangesNoBit) {
  const auto [ranks, index] = GetParam();
  const auto& [name, make] = optimizers()[index];
  const std::string expected = train_digest({.ranks = ranks, .steps = 7, .fusion = "all"}, make);
  for (const std::string policy : {"dear", "dear-eager"}) {
    for (const std::string fusion : {"layer", "first=64KiB,1MiB", "all"}) {
      Training run{.ranks = ranks, .steps = 7, .policy = policy, .fusion = fusion, .one_copy = true};
      EXPECT_EQ(train_digest(run, make), expected) << name << ", " << policy << ", " << fusion;
      run.regroup = {{1, "all"}, {3, "layer"}, {4, "1MiB"}};
      EXPECT_EQ(train_digest(run, make), expected) << name << ", " << policy << ", regrouped from " << fusion;
    }
    EXPECT_EQ(
        train_digest({.ranks = ranks, .steps = 7, .policy = policy, .planned = true, .one_copy = true}, make),
        expected)
        << name << ", " << policy << ", planned";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, OneCopy, ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Range<std::size_t>(0, 6)),
    [](const auto& info) {
      return optimizers()[std::get<1>(info.param)].first + "On" + std::to_string(std::get<0>(info.param));
    });

class Optimisers : public ::testing::TestWithParam<std::size_t> {};

// One rank is plain libtorch, bit for bit: flat vectors change nothing.
TEST_P(Optimisers, OneRankIsPlainLibtorch) {
  const auto& make = optimizers()[GetParam()].second;
  Net net = fresh_net(5);
  const auto optimizer = make(net);
  for (int step = 0; step < 5; ++step) {
    const Batch batch = rows(step, 0, 2, kFeatures);
    optimizer->zero_grad();
    torch::mse_loss(net->forward(batch.inputs), batch.targets).backward();
    optimizer->step();
  }
  EXPECT_EQ(train_digest({}, make), parameter_digest(*net));
}

TEST_P(Optimisers, ManyRanksAreOneWithTheWholeBatch) {
  const auto& make = optimizers()[GetParam()].second;
  std::vector<torch::Tensor> whole;
  train_digest({.ranks = 1, .batch = 8, .steps = 20}, make, &whole);
  for (const int ranks : {2, 4}) {
    std::vector<torch::Tensor> shared;
    train_digest({.ranks = ranks, .batch = 8 / ranks, .steps = 20}, make, &shared);
    ASSERT_EQ(shared.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(torch::allclose(shared[i], whole[i], 1e-3, 1e-4))
          << ranks << " ranks, tensor " << i << ", off by "
          << (shared[i] - whole[i]).abs().max().item<double>();
    }
  }
}

// State and parameters move to other shards, and nothing of a result changes.
TEST_P(Optimisers, RegroupingChangesNoBit) {
  const auto& make = optimizers()[GetParam()].second;
  const std::map<int, std::string> regroup = {{1, "layer"}, {3, "all"}, {4, "first=64KiB,1MiB"}};
  for (const int ranks : {1, 3}) {
    const std::string expected = train_digest({.ranks = ranks, .steps = 7}, make);
    for (const std::string policy : {"serial", "wfbp", "dear-replicated", "dear"}) {
      EXPECT_EQ(train_digest({.ranks = ranks, .steps = 7, .policy = policy, .regroup = regroup}, make),
                expected)
          << ranks << " ranks, " << policy;
    }
  }
}

TEST_P(Optimisers, PlanningChangesNoBit) {
  const auto& make = optimizers()[GetParam()].second;
  for (const int ranks : {1, 2, 4}) {
    const std::string expected = train_digest({.ranks = ranks, .steps = 8}, make);
    for (const std::string policy : {"wfbp", "dear", "dear-eager"}) {
      EXPECT_EQ(train_digest({.ranks = ranks, .steps = 8, .policy = policy, .planned = true}, make), expected)
          << ranks << " ranks, " << policy;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Optimisers, ::testing::Range<std::size_t>(0, 6),
                         [](const auto& info) { return optimizers()[info.param].first; });

}  // namespace
}  // namespace dear::equivalence_test
