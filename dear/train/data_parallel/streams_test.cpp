// Training on a device with streams computes, to the bit, what training on the CPU does.

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/join.h"
#include "dear/train/data_parallel/testing/host_collectives.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::streams_test {
namespace {

using train::testing::Batch;
using train::testing::HostCollectives;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;

constexpr std::int64_t kInputs = 16;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(kInputs, 40));
    second = register_module("second", torch::nn::Linear(40, 24));
    head = register_module("head", torch::nn::Linear(24, 3));
    unused = register_module("unused", torch::nn::Linear(3, 5));
    const torch::NoGradGuard no_grad;
    for (torch::Tensor tensor : parameters())
      tensor.copy_(0.2 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  }
  torch::Tensor forward(torch::Tensor x) { return head(torch::tanh(second(torch::tanh(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr}, head{nullptr}, unused{nullptr};
};
TORCH_MODULE(Net);

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<torch::Tensor>&)>;

template <typename O, typename Options>
MakeOptimizer with(Options options) {
  return [options](const std::vector<torch::Tensor>& parameters) {
    return std::make_unique<O>(parameters, options);
  };
}

MakeOptimizer sgd() { return with<torch::optim::SGD>(torch::optim::SGDOptions(0.05).momentum(0.9)); }
MakeOptimizer adamw() {
  return with<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
}

struct Job {
  Net& net;
  torch::optim::Optimizer& optimizer;
  DataParallel& dp;
  int rank;

  [[nodiscard]] torch::Tensor loss(int step) const {
    const Batch batch = rows(step, 2 * rank, 2, kInputs);
    const at::Device device = net->first->weight.device();
    return torch::mse_loss(net->forward(batch.inputs.to(device)), batch.targets.to(device));
  }
  void train(int step) {
    loss(step).backward();
    dp.step();
  }
};
using Program = std::function<void(Job&)>;

struct Setting {
  int ranks = 2;
  bool streams = true;
  std::string policy = "dear";
  std::string fusion = "2KiB";
  MakeOptimizer optimizer = sgd();
};

// All parameters of rank 0, on the CPU, which those of the others equal.
std::vector<torch::Tensor> train(const Program& program, const Setting& setting) {
  std::vector<std::vector<torch::Tensor>> results(setting.ranks);
  run_all(setting.ranks, [&](int rank, const Group& group) {
    Net net;
    const std::unique_ptr<torch::optim::Optimizer> optimizer = setting.optimizer(net->parameters());
    DataParallelOptions options{.policy = setting.policy, .buckets = given(Fusion::parse(setting.fusion))};
    if (setting.streams) options.streams = std::make_shared<HostCollectives>(group);
    DataParallel dp(*net, *optimizer, group, options);
    Job job{net, *optimizer, dp, rank};
    program(job);
    dp.synchronize();
    for (const torch::Tensor& tensor : net->parameters())
      results[rank].push_back(tensor.detach().cpu().clone());
  });
  for (std::size_t rank = 1; rank < results.size(); ++rank)
    for (std::size_t i = 0; i < results[0].size(); ++i)
      EXPECT_TRUE(torch::equal(results[rank][i], results[0][i])) << "rank " << rank << ", tensor " << i;
  return results[0];
}

void expect_as_on_the_cpu(const Program& program, Setting setting = {}) {
  const std::vector<torch::Tensor> found = train(program, setting);
  setting.streams = false;
  const std::vector<torch::Tensor> expected = train(program, setting);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(torch::equal(found[i], expected[i])) << setting.policy << ", tensor " << i;
}

void five_steps(Job& job) {
  for (int step = 0; step < 5; ++step) job.train(step);
}

TEST(StreamTraining, EachPolicyComputesWhatItComputesOnTheCpu) {
  for (const std::string policy : {"dear", "dear-replicated", "wfbp", "serial"})
    for (const int ranks : {2, 3})
      for (const std::string fusion : {"layer", "2KiB", "all"})
        expect_as_on_the_cpu(five_steps, {.ranks = ranks, .policy = policy, .fusion = fusion});
}

TEST(StreamTraining, EachOptimiserComputesWhatItComputesOnTheCpu) {
  namespace o = torch::optim;
  const std::vector<MakeOptimizer> optimizers{adamw(), with<o::Adam>(o::AdamOptions(1e-2).amsgrad(true)),
                                              with<o::RMSprop>(o::RMSpropOptions(1e-2).centered(true)),
                                              with<o::Adagrad>(o::AdagradOptions(1e-2))};
  for (const MakeOptimizer& optimizer : optimizers)
    expect_as_on_the_cpu(five_steps, {.optimizer = optimizer});
}

TEST(StreamTraining, AccumulationAndGradientsThatWereSetToNone) {
  expect_as_on_the_cpu([](Job& job) {
    for (int step = 0; step < 4; ++step) {
      {
        const auto guard = job.dp.no_sync();
        job.loss(10 + step).backward();
      }
      job.train(step);
      for (torch::Tensor& tensor : job.net->parameters()) tensor.mutable_grad().reset();
    }
  });
}

TEST(StreamTraining, OptionsOfTheOptimiserAreThoseAtStep) {
  expect_as_on_the_cpu([](Job& job) {
    for (int step = 0; step < 4; ++step) {
      job.train(step);
      static_cast<torch::optim::SGDOptions&>(job.optimizer.param_groups()[0].options()).lr(0.01 * (step + 1));
    }
  });
}

TEST(StreamTraining, RegroupAndStateOfTheOptimiser) {
  const Program program = [](Job& job) {
    job.train(0);
    job.train(1);
    job.dp.regroup(Fusion::parse("layer"));
    job.train(2);
    const std::vector<DataParallel::StateOfParameter> state = job.dp.optimizer_state();
    job.train(3);
    job.dp.load_optimizer_state(state);
    job.train(4);
  };
  expect_as_on_the_cpu(program);
  expect_as_on_the_cpu(program, {.ranks = 3, .optimizer = adamw()});
}

TEST(StreamTraining, AStepThatIsGivenUpChangesNothing) {
  expect_as_on_the_cpu([](Job& job) {
    job.train(0);
    job.loss(1).backward();
    job.dp.discard_step();
    job.train(2);
  });
}

TEST(StreamTraining, ParametersThatTheProgramReplacesOrWrites) {
  expect_as_on_the_cpu([](Job& job) {
    job.train(0);
    {
      const torch::NoGradGuard no_grad;
      job.net->first->weight.mul_(0.5);
    }
    job.net->second->weight.set_data(job.net->second->weight.detach() * 2);
    job.train(1);
    job.train(2);
  });
}

TEST(StreamTraining, ClippingIsThatOfTheCpu) {
  const auto clipped = [](bool streams, double type) {
    return train(
        [type](Job& job) {
          for (int step = 0; step < 3; ++step) {
            job.loss(step).backward();
            const torch::Tensor norm = job.dp.clip_gradients(0.01, {.type = type});
            EXPECT_GT(norm.item<double>(), 0.01);
            job.dp.clip_gradients_by_value(0.005);
            job.dp.step();
          }
        },
        {.streams = streams});
  };
  for (const double type : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    const std::vector<torch::Tensor> found = clipped(true, type), expected = clipped(false, type);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-6, 1e-8)) << "type " << type << ", tensor " << i;
  }
}

TEST(StreamTraining, ANormThatIsNotFiniteIsAnErrorOnAllRanksWhereThatIsAsked) {
  expect_as_on_the_cpu([](Job& job) {
    job.train(0);
    (job.loss(1) * (job.rank == 1 ? std::numeric_limits<float>::infinity() : 1)).backward();
    EXPECT_THROW(job.dp.clip_gradients_by_norm(0.01, {.error_if_nonfinite = true}), ConfigError);
    job.dp.discard_step();
    job.train(2);
  });
}

TEST(StreamTraining, RanksThatClipDifferentlyAreToldSo) {
  const auto told = [](const std::function<void(Job&, int step)>& clip) {
    std::vector<std::string> said(2);
    run_all(2, [&](int rank, const Group& group) {
      Net net;
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      DataParallel dp(*net, optimizer, group,
                      {.buckets = given(), .streams = std::make_shared<HostCollectives>(group)});
      Job job{net, optimizer, dp, rank};
      said.at(rank) = message_of<MismatchError>([&] {
        for (int step = 0; step < 3; ++step) {
          job.loss(step).backward();
          clip(job, step);
          dp.step();
        }
      });
    });
    return said;
  };
  for (const std::string& said : told([](Job& job, int) { job.dp.clip_gradients(1.0 + job.rank); }))
    EXPECT_NE(said.find("clip_gradients_by_norm(2)"), std::string::npos) << said;
  for (const std::string& said :
       told([](Job& job, int step) { job.dp.clip_gradients_by_value(1.0 + job.rank * step); }))
    EXPECT_NE(said.find("clip_gradients_by_value"), std::string::npos) << said;
}

TEST(StreamTraining, AScaledLossIsUnscaledAndAnOverflowGivesTheStepUp) {
  expect_as_on_the_cpu(
      [](Job& job) {
        for (int step = 0; step < 4; ++step) {
          const bool overflows = step == 2 && job.rank == 1;
          (job.loss(step) * (overflows ? std::numeric_limits<float>::infinity() : 128)).backward();
          EXPECT_EQ(job.dp.step({.loss_scale = 128}), step != 2);
        }
      },
      {.policy = "serial"});
}

TEST(StreamTraining, MeansOfGradientsWholeOnEveryRank) {
  expect_as_on_the_cpu([](Job& job) {
    for (int step = 0; step < 3; ++step) {
      job.loss(step).backward();
      job.dp.reduce_gradients();
      job.net->second->weight.mutable_grad().mul_(0.5);
      job.dp.step();
    }
  });
}

TEST(StreamTraining, WhatIsNotThereIsRefused) {
  run_all(2, [](int /*rank*/, const Group& group) {
    Net net;
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto refused = [&](DataParallelOptions options) {
      options.streams = std::make_shared<HostCollectives>(group);
      return message_of<ConfigError>([&] { DataParallel(*net, optimizer, group, options); });
    };
    EXPECT_NE(refused({.policy = "dear-eager", .buckets = given()}).find("dear-eager"), std::string::npos);
    EXPECT_NE(refused({.buckets = given(), .one_copy = true}).find("one_copy"), std::string::npos);
    EXPECT_NE(refused({.buckets = given(), .record_trace = true}).find("record_trace"), std::string::npos);

    DataParallel dp(*net, optimizer, group,
                    {.buckets = given(), .streams = std::make_shared<HostCollectives>(group)});
    EXPECT_NE(message_of<ConfigError>([&] { dp.samples(3); }).find("samples()"), std::string::npos);
    EXPECT_NE(message_of<ConfigError>([&] { const Join join(dp); }).find("Join"), std::string::npos);
  });
}

}  // namespace
}  // namespace dear::streams_test
