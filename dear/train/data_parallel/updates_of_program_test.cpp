// Updates that the program's optimiser makes itself: as on one process, whatever it keeps.

#include <memory>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::updates_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

struct CountingOptions : torch::optim::OptimizerCloneableOptions<CountingOptions> {
  explicit CountingOptions(double rate = 0.1) : rate(rate) {}
  double rate;
  double get_lr() const override { return rate; }
  void set_lr(double lr) override { rate = lr; }
};

// A step of 1 / (number of steps) times the gradient over the norm of all gradients: nothing of it is known.
class Counting : public torch::optim::Optimizer {
 public:
  explicit Counting(const std::vector<torch::Tensor>& parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)}, std::make_unique<CountingOptions>()) {}
  torch::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const torch::NoGradGuard no_grad;
    ++steps;
    double squares = 0;
    for (const torch::Tensor& one : param_groups()[0].params())
      if (one.grad().defined()) squares += one.grad().square().sum().item<double>();
    for (torch::Tensor& one : param_groups()[0].params())
      if (one.grad().defined()) one.sub_(one.grad(), 0.1 / steps / std::sqrt(1 + squares));
    return {};
  }
  int steps = 0;
};

torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Linear(6, 10), torch::nn::Tanh(), torch::nn::Linear(10, 3));
  const torch::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(5);
  std::vector<torch::Tensor> parameters = net->parameters();
  for (torch::Tensor& parameter : parameters)
    parameter.copy_(0.3 * torch::randn(parameter.sizes(), generator));
  return net;
}

torch::Tensor samples(int step, int rank) {
  return torch::randn({4, 6}, at::detail::createCPUGenerator(100 * step + rank));
}

// All ranks' gradients, added in their order, on one process.
template <typename Change>
std::vector<torch::Tensor> by_hand(int ranks, int steps, Change change) {
  torch::nn::Sequential net = make_net();
  Counting optimizer(net->parameters());
  for (int step = 0; step < steps; ++step) {
    net->zero_grad();
    for (int rank = 0; rank < ranks; ++rank)
      (net->forward(samples(step, rank)).square().mean() / ranks).backward();
    change(*net);
    optimizer.step();
  }
  return net->parameters();
}

void expect_near(const std::vector<torch::Tensor>& found, const std::vector<torch::Tensor>& expected,
                 const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-6, 1e-7)) << what << ", tensor " << i;
}

class Program : public ::testing::TestWithParam<std::string> {};

TEST_P(Program, AnOptimiserThatNobodyKnowsTrainsAsOnOneProcess) {
  for (const int ranks : {2, 3}) {
    const std::vector<torch::Tensor> expected = by_hand(ranks, 5, [](auto&) {});
    run_all(ranks, [&](int rank, Group group) {
      torch::nn::Sequential net = make_net();
      Counting optimizer(net->parameters());
      std::string said;
      DataParallelOptions options{.policy = GetParam(), .buckets = given(Fusion::parse("layer"))};
      options.say = [&](const std::string& sentence) { said += sentence; };
      DataParallel dp(*net, optimizer, std::move(group), options);
      const void* where = net->parameters()[0].const_data_ptr();
      for (int step = 0; step < 5; ++step) {
        net->forward(samples(step, rank)).square().mean().backward();
        dp.step();
        if (step == 1) dp.regroup(Fusion::parse("all"));
      }
      dp.synchronize();
      expect_near(net->parameters(), expected, GetParam());
      EXPECT_EQ(optimizer.steps, 5);
      EXPECT_EQ(net->parameters()[0].const_data_ptr(), where) << "the parameter has moved";
      EXPECT_TRUE(dp.by_program());
      EXPECT_FALSE(dp.has_state());
      if (rank == 0) {
        EXPECT_THAT(said, AllOf(HasSubstr("Counting"), HasSubstr("policy wfbp")));
      }
    });
  }
}

// From the first iteration on, where nothing is sent before step().
TEST_P(Program, SeesMeansBetweenBackwardAndStep) {
  const auto limit = [](torch::nn::Module& net) {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> parameters = net.parameters();
    for (torch::Tensor& parameter : parameters) parameter.mutable_grad().clamp_(-0.01, 0.01);
    parameters[0].mutable_grad() = parameters[0].grad() * 2;
    parameters[1].mutable_grad().reset();
  };
  const std::vector<torch::Tensor> expected = by_hand(2, 4, limit);
  run_all(2, [&](int rank, Group group) {
    torch::nn::Sequential net = make_net();
    Counting optimizer(net->parameters());
    DataParallel dp(
        *net, optimizer, std::move(group),
        {.policy = GetParam(), .buckets = given(Fusion::parse("layer")), .say = [](const auto&) {}});
    for (int step = 0; step < 4; ++step) {
      net->forward(samples(step, rank)).square().mean().backward();
      if (step == 2) dp.reduce_gradients();
      limit(*net);
      dp.step();
    }
    expect_near(net->parameters(), expected, GetParam());
  });
}

INSTANTIATE_TEST_SUITE_P(Policies, Program, ::testing::Values("serial", "wfbp", "dear", "dear-eager"),
                         [](const auto& info) {
                           return info.param == "dear-eager" ? std::string("dear_eager") : info.param;
                         });

TEST(Updates, OfMemoryThatSomethingElseHoldsAreTheProgramsOrRefused) {
  run_all(2, [&](int rank, const Group& group) {
    torch::nn::Sequential net = make_net();
    const torch::Tensor held = net->parameters()[0].detach();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    EXPECT_THAT(message_of<ConfigError>([&] {
                  DataParallel(*net, sgd, group, {.buckets = given(), .updates = Updates::sharded});
                }),
                HasSubstr("'0.weight'"));
    DataParallel dp(*net, sgd, group, {.buckets = given(), .say = [](const auto&) {}});
    net->forward(samples(0, rank)).square().mean().backward();
    dp.step();
    dp.synchronize();
    EXPECT_TRUE(torch::equal(held, net->parameters()[0]));
  });
}

// Compressed gradients are whole after step() alone.
TEST(Updates, OfTheProgramRefuseCompressedGradientsThatWereReplaced) {
  const auto errors = run_each(groups_of(2), [](int rank, const Group& group) {
    torch::nn::Sequential net = make_net();
    Counting optimizer(net->parameters());
    DataParallel dp(*net, optimizer, group,
                    {.buckets = given(Fusion::parse("layer")),
                     .compression = Compression::parse("bf16"),
                     .say = [](const auto&) {}});
    for (int step = 0; step < 3; ++step) {
      net->forward(samples(step, rank)).square().mean().backward();
      torch::Tensor& gradient = net->parameters()[0].mutable_grad();
      if (step == 2) gradient = gradient * 2;
      dp.step();
    }
  });
  for (const auto& error : errors) EXPECT_THAT(what_of(error), HasSubstr("'0.weight' was replaced"));
}

// What is whole on no rank must not be written.
TEST(Updates, OfShardsRefuseGradientsThatWereWrittenBeforeTheyAreWhole) {
  for (const int when : {0, 2}) {
    const auto errors = run_each(groups_of(2), [&](int rank, const Group& group) {
      torch::nn::Sequential net = make_net();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      DataParallel dp(*net, sgd, group, {.buckets = given(Fusion::parse("layer"))});
      for (int step = 0; step < 3; ++step) {
        net->forward(samples(step, rank)).square().mean().backward();
        if (step == when) net->parameters()[0].mutable_grad().clamp_(-0.01, 0.01);
        dp.step();
      }
    });
    for (const auto& error : errors) EXPECT_THAT(what_of(error), HasSubstr("reduce_gradients()"));
  }
}

TEST(Updates, OfShardsTakeGradientsThatWereReplacedAfterTheyWereMadeWhole) {
  const auto change = [](torch::nn::Module& net) {
    std::vector<torch::Tensor> parameters = net.parameters();
    parameters[0].mutable_grad() = parameters[0].grad() * 2;
    parameters[1].mutable_grad().reset();
  };
  torch::nn::Sequential plain = make_net();
  torch::optim::SGD hand(plain->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    plain->zero_grad();
    for (int rank = 0; rank < 2; ++rank) (plain->forward(samples(step, rank)).square().mean() / 2).backward();
    change(*plain);
    hand.step();
  }
  run_all(2, [&](int rank, Group group) {
    torch::nn::Sequential net = make_net();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion::parse("layer"))});
    for (int step = 0; step < 3; ++step) {
      net->forward(samples(step, rank)).square().mean().backward();
      dp.reduce_gradients();
      change(*net);
      dp.step();
    }
    dp.synchronize();
    expect_near(net->parameters(), plain->parameters(), "dear");
  });
}

}  // namespace
}  // namespace dear::updates_test
