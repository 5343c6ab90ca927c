// The optimiser's state: taken over, gathered, and put back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/net.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::state_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::kFeatures;
using train::testing::make_net;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

// Every rank has the same rows, so that the average of two gradients is, to the bit, that of one process.
void backward(torch::nn::Sequential& net, int step) {
  const auto batch = rows(step, 0, 2, kFeatures);
  torch::mse_loss(net->forward(batch.inputs), batch.targets).backward();
}

void train_alone(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    optimizer.zero_grad();
    backward(net, step);
    optimizer.step();
  }
}

void train_together(torch::nn::Sequential& net, DataParallel& parallel, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    backward(net, step);
    parallel.step();
  }
  parallel.synchronize();
}

struct Job {
  torch::nn::Sequential net = make_net();
  torch::optim::AdamW adamw{net->parameters(), torch::optim::AdamWOptions(1e-3).amsgrad(true)};
};

std::string digest_alone(int steps) {
  Job job;
  train_alone(job.net, job.adamw, 0, steps);
  return parameter_digest(*job.net);
}

TEST(State, OfAnOptimiserThatHasTrainedIsTakenOver) {
  const std::string expected = digest_alone(6);
  run_all(2, [&](int, Group group) {
    Job job;
    train_alone(job.net, job.adamw, 0, 3);
    job.adamw.zero_grad();
    DataParallel parallel(*job.net, job.adamw, group, {.buckets = given()});
    train_together(job.net, parallel, 3, 6);
    EXPECT_EQ(parameter_digest(*job.net), expected);
  });
}

TEST(State, OfRank0CountsOnAllRanks) {
  const std::string expected = digest_alone(6);
  run_all(2, [&](int rank, Group group) {
    Job job;
    train_alone(job.net, job.adamw, 10 * rank, 10 * rank + 3);  // rank 1 has seen other rows
    job.adamw.zero_grad();
    DataParallel parallel(*job.net, job.adamw, group, {.buckets = given()});
    train_together(job.net, parallel, 3, 6);
    EXPECT_EQ(parameter_digest(*job.net), expected);
  });
}

TEST(State, ThatIsNotThereOnARankIsRefusedOnAll) {
  const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
    Job job;
    if (rank == 0) train_alone(job.net, job.adamw, 0, 3);
    job.adamw.zero_grad();
    DataParallel parallel(*job.net, job.adamw, group, {.buckets = given()});
    train_together(job.net, parallel, 3, 4);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THROW(std::rethrow_exception(error), MismatchError);
    EXPECT_THAT(what_of(error), AllOf(HasSubstr("rank 1"), HasSubstr("state")));
  }
}

TEST(State, IsGatheredAsOneProcessHasIt) {
  Job alone;
  train_alone(alone.net, alone.adamw, 0, 4);
  run_all(3, [&](int, Group group) {
    Job job;
    DataParallel parallel(*job.net, job.adamw, group, {.buckets = given()});
    for (int step = 0; step < 4; ++step) {
      const auto batch = rows(step, 0, 2, kFeatures);
      torch::mse_loss(job.net->forward(batch.inputs), batch.targets).backward();
      parallel.step();
    }
    const auto states = parallel.optimizer_state();
    const auto expected = alone.net->parameters();
    ASSERT_EQ(states.size(), expected.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      const auto& theirs = static_cast<const torch::optim::AdamWParamState&>(
          *alone.adamw.state().at(expected[i].unsafeGetTensorImpl()));
      ASSERT_TRUE(states[i].state);
      EXPECT_TRUE(states[i].parameter.is_same(job.net->parameters()[i]));
      const auto& mine = states[i].state->vectors;
      EXPECT_EQ(mine.size(), 3U);
      EXPECT_TRUE(mine.at("exp_avg").allclose(theirs.exp_avg(), 1e-5, 1e-7));
      EXPECT_TRUE(mine.at("max_exp_avg_sq").allclose(theirs.max_exp_avg_sq(), 1e-5, 1e-9));
    }
  });
}

TEST(State, PutBackGoesOnWhereItWasGathered) {
  const std::string expected = digest_alone(6);
  run_all(2, [&](int, Group group) {
    Job job;
    std::vector<DataParallel::StateOfParameter> kept;
    std::vector<torch::Tensor> values;
    DataParallel parallel(*job.net, job.adamw, group, {.policy = "dear", .buckets = given()});
    train_together(job.net, parallel, 0, 3);
    kept = parallel.optimizer_state();
    for (const torch::Tensor& tensor : job.net->parameters()) values.push_back(tensor.detach().clone());
    train_together(job.net, parallel, 20, 23);
    parallel.load_optimizer_state(kept);
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < values.size(); ++i) job.net->parameters()[i].copy_(values[i]);
    }
    train_together(job.net, parallel, 3, 6);
    EXPECT_EQ(parameter_digest(*job.net), expected);
  });
}

TEST(State, IsGatheredByAllRanksTogether) {
  const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
    Job job;
    DataParallel parallel(*job.net, job.adamw, group, {.buckets = given()});
    train_together(job.net, parallel, 0, 2);
    rank == 0 ? static_cast<void>(parallel.optimizer_state()) : parallel.regroup(Fusion::parse("layer"));
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THROW(std::rethrow_exception(error), MismatchError);
    EXPECT_THAT(what_of(error), HasSubstr("optimizer_state()"));
  }
}

TEST(State, OfATensorThatIsNotTrainedIsRefused) {
  run_all(2, [&](int rank, Group group) {
    Job job;
    DataParallel parallel(*job.net, job.adamw, group, {.buckets = given()});
    train_together(job.net, parallel, 0, 2);
    const std::string message = train::testing::message_of<ConfigError>(
        [&] { parallel.load_optimizer_state({{torch::ones({3}), OptimizerState{}}}); });
    EXPECT_THAT(message, AllOf(HasSubstr("rank " + std::to_string(rank)), HasSubstr("[3]")));
  });
}

TEST(State, ThatOneRankAloneCannotLoadIsLoadedOnNone) {
  const std::string expected = digest_alone(4);
  run_all(2, [&](int rank, Group group) {
    Job job;
    DataParallel parallel(*job.net, job.adamw, group, {.buckets = given()});
    train_together(job.net, parallel, 0, 2);
    auto state = parallel.optimizer_state();
    const auto good = state;
    for (auto& [parameter, of_parameter] : state)
      for (auto& [name, values] : of_parameter->vectors) values = values * 2;
    if (rank == 1) state.back().state->vectors.begin()->second = torch::ones({5});
    const std::string message =
        train::testing::message_of<ConfigError>([&] { parallel.load_optimizer_state(state); });
    EXPECT_THAT(message, AllOf(HasSubstr("rank 1"), HasSubstr("another shape")));
    train_together(job.net, parallel, 2, 3);
    if (rank == 1) state.push_back({torch::ones({3}), OptimizerState{}});
    EXPECT_THROW(parallel.load_optimizer_state(rank == 0 ? good : state), ConfigError);
    train_together(job.net, parallel, 3, 4);
    EXPECT_EQ(parameter_digest(*job.net), expected);
  });
}

TEST(State, IsLoadedByAllRanksTogether) {
  const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
    Job job;
    DataParallel parallel(*job.net, job.adamw, group, {.buckets = given()});
    train_together(job.net, parallel, 0, 2);
    const auto state = parallel.optimizer_state();
    rank == 0 ? parallel.load_optimizer_state(state) : parallel.regroup(Fusion::parse("layer"));
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THROW(std::rethrow_exception(error), MismatchError);
    EXPECT_THAT(what_of(error), HasSubstr("load_optimizer_state()"));
  }
}

}  // namespace
}  // namespace dear::state_test
