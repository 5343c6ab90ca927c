// What cannot go on must say so: to every rank, with the culprit's name, before anything is applied.

#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::failure_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

torch::nn::Sequential net_of(std::int64_t width) {
  return torch::nn::Sequential(torch::nn::Linear(8, width), torch::nn::Tanh(), torch::nn::Linear(width, 2));
}

torch::Tensor loss_of(torch::nn::Sequential& net) { return net->forward(torch::ones({2, 8})).pow(2).sum(); }

template <typename Error>
void expect_everywhere(const std::vector<std::exception_ptr>& errors,
                       const ::testing::Matcher<const std::string&>& message) {
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THROW(std::rethrow_exception(error), Error);
    EXPECT_THAT(what_of(error), message);
  }
}

TEST(Failure, ModelsThatDifferAreNamedOnEveryRank) {
  const auto errors = run_each(groups_of(3), [](int rank, Group group) {
    auto net = net_of(rank == 2 ? 6 : 5);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    DataParallel dp(*net, sgd, group, {.buckets = given()});
  });
  expect_everywhere<MismatchError>(
      errors, AllOf(HasSubstr("rank 2 differs from that of rank 0"), HasSubstr("tensor 0"),
                    HasSubstr("'0.weight'"), HasSubstr("[6, 8]"), HasSubstr("[5, 8]")));
}

TEST(Failure, AModelWithFewerTensorsIsNamed) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    auto net = net_of(5);
    if (rank == 1) net->push_back(torch::nn::Linear(2, 2));
    torch::optim::SGD sgd(net->parameters(), 0.1);
    DataParallel dp(*net, sgd, group, {.buckets = given()});
  });
  expect_everywhere<MismatchError>(errors, AllOf(HasSubstr("'3.weight'"), HasSubstr("nothing more")));
}

TEST(Failure, ParametersFrozenOnOneRankAreNamed) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    auto net = net_of(5);
    if (rank == 1) net->parameters()[1].set_requires_grad(false);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    DataParallel dp(*net, sgd, group, {.buckets = given()});
  });
  expect_everywhere<MismatchError>(errors, HasSubstr("'0.bias'"));
}

TEST(Failure, OptimisersThatDifferAreNamed) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    auto net = net_of(5);
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    if (rank == 0) {
      optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);
    } else {
      optimizer = std::make_unique<torch::optim::Adam>(net->parameters());
    }
    DataParallel dp(*net, *optimizer, group, {.buckets = given()});
  });
  expect_everywhere<MismatchError>(errors,
                                   AllOf(HasSubstr("optimiser"), HasSubstr("SGD"), HasSubstr("Adam")));
}

// The groupings of ranks differ, so would the meaning of every byte.
TEST(Failure, SettingsThatDifferAreFoundBeforeAnythingIsReduced) {
  for (const bool policy : {true, false}) {
    const auto errors = run_each(groups_of(2), [policy](int rank, Group group) {
      auto net = net_of(5);
      torch::optim::SGD sgd(net->parameters(), 0.1);
      DataParallelOptions options{.buckets = given()};
      if (rank == 1 && policy) options.policy = "wfbp";
      if (rank == 1 && !policy) options.buckets = given(Fusion::parse("layer"));
      DataParallel dp(*net, sgd, group, options);
      loss_of(net).backward();
      dp.step();
    });
    expect_everywhere<MismatchError>(errors,
                                     AllOf(HasSubstr(policy ? "schedule" : "buckets"), HasSubstr("rank 1")));
  }
}

TEST(Failure, WhatCannotBeTrainedIsRefusedAtConstruction) {
  const auto construct = [](torch::nn::Module& net, torch::optim::Optimizer& optimizer,
                            DataParallelOptions options = {.buckets = given()}) {
    DataParallel dp(net, optimizer, groups_of(1)[0], std::move(options));
  };
  auto net = net_of(5);
  EXPECT_THAT(message_of<ConfigError>([&] {
                torch::optim::LBFGS lbfgs(net->parameters());
                construct(*net, lbfgs);
              }),
              AllOf(HasSubstr("LBFGS"), HasSubstr("AdamW")));
  EXPECT_THAT(message_of<ConfigError>([&] {
                torch::optim::SGD sgd({net->parameters()[0]}, 0.1);
                construct(*net, sgd);
              }),
              AllOf(HasSubstr("'0.bias'"), HasSubstr("optimiser does not hold it")));
  EXPECT_THAT(message_of<ConfigError>([&] {
                auto other = net_of(5);
                torch::optim::SGD sgd(other->parameters(), 0.1);
                for (auto& parameter : other->parameters()) parameter.set_requires_grad(false);
                construct(*other, sgd);
              }),
              HasSubstr("requires a gradient"));
  EXPECT_THAT(message_of<ConfigError>([&] {
                auto other = net_of(5);
                auto whole = torch::randn({10});
                other->register_parameter("a", whole.slice(0, 0, 6).detach());
                other->register_parameter("b", whole.slice(0, 4, 10).detach());
                torch::optim::SGD sgd(other->parameters(), 0.1);
                construct(*other, sgd, {.buckets = given(), .updates = Updates::sharded});
              }),
              AllOf(HasSubstr("'a' and 'b'"), HasSubstr("share memory")));
}

TEST(Failure, AnUnknownPolicyIsRefusedByName) {
  auto net = net_of(5);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_THAT(message_of<ConfigError>([&] {
                DataParallel dp(*net, sgd, groups_of(1)[0], {.policy = "deer", .buckets = given()});
              }),
              AllOf(HasSubstr("deer"), HasSubstr("dear-replicated")));
}

// Each rank finds it, or hears of it from the other.
TEST(Failure, GradientsDroppedAfterTheyWereSentAreAnError) {
  const auto errors = run_each(groups_of(2), [](int, Group group) {
    auto net = net_of(5);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given()});
    for (int step = 0; step < 2; ++step) {
      loss_of(net).backward();
      if (step == 1) net->parameters()[0].mutable_grad().reset();
      dp.step();
    }
  });
  expect_everywhere<Error>(errors, AllOf(HasSubstr("'0.weight'"), HasSubstr("after it was sent")));
}

// Rank 1 leaves with an error of its own; the others hear of it, by name, at their next call.
TEST(Failure, ARankThatThrowsEndsTheOthers) {
  for (const int when : {0, 1, 2}) {
    const auto errors = run_each(groups_of(3), [when](int rank, Group group) {
      auto net = net_of(5);
      torch::optim::SGD sgd(net->parameters(), 0.1);
      DataParallel dp(*net, sgd, std::move(group), {.buckets = given()});
      for (int step = 0; step < 50; ++step) {
        if (rank == 1 && step == 1 && when == 0) throw std::runtime_error("out of data");
        loss_of(net).backward();
        if (rank == 1 && step == 1 && when == 1) throw std::runtime_error("out of data");
        dp.step();
        if (rank == 1 && step == 1 && when == 2) throw std::runtime_error("out of data");
      }
    });
    EXPECT_EQ(what_of(errors[1]), "out of data");
    for (const int rank : {0, 2}) {
      ASSERT_TRUE(errors[rank]) << when;
      EXPECT_THROW(std::rethrow_exception(errors[rank]), TransportError);
      EXPECT_THAT(what_of(errors[rank]), HasSubstr("rank 1"));
    }
  }
}

// A rank with fewer batches leaves early, in good order: the others do not hang.
TEST(Failure, UnevenInputsEndWithTheNameOfTheRankThatLeft) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    auto net = net_of(5);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given()});
    for (int step = 0; step < (rank == 1 ? 3 : 5); ++step) {
      loss_of(net).backward();
      dp.step();
    }
    dp.synchronize();
  });
  EXPECT_FALSE(errors[1]) << what_of(errors[1]);
  ASSERT_TRUE(errors[0]);
  EXPECT_THAT(what_of(errors[0]), HasSubstr("rank 1"));
}

// libtorch swallows what is thrown while an operator is observed: the error is kept, and no step follows it.
TEST(Failure, AnErrorMetInsideAnOperatorStopsTheNextStep) {
  std::promise<void> stepped;
  run_all(2, [&](int rank, Group group) {
    torch::manual_seed(1);
    auto net = net_of(5);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    DataParallel dp(*net, sgd, group, {.buckets = given()});
    loss_of(net).backward();
    dp.step();
    dp.synchronize();
    if (rank == 1) {
      stepped.get_future().wait();
      group.abort("rank 1 was told to stop");
      return;
    }
    const torch::Tensor before = net->parameters()[0].detach().clone();
    loss_of(net).backward();
    dp.step();  // its gathers will never come: rank 1 takes no part
    stepped.set_value();
    const torch::Tensor loss = loss_of(net);  // meets the failure, and returns all the same
    EXPECT_THROW(loss.backward(), TransportError);
    EXPECT_THROW(dp.step(), TransportError);
    EXPECT_THROW(dp.synchronize(), TransportError);
    EXPECT_EQ(dp.statistics().iterations, 2);
    EXPECT_TRUE(torch::equal(net->parameters()[0], before));
  });
}

}  // namespace
}  // namespace dear::failure_test
