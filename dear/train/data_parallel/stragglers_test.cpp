// Ranks that compute longer than others are named.

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::stragglers_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using train::testing::groups_of;
using train::testing::run_each;
using train::testing::what_of;

// What rank 0 is told while rank 2 of 3 sleeps so long in each forward pass.
std::string said_of(std::chrono::milliseconds sleep, const std::optional<SlowRankLimits>& limits) {
  std::string said;
  for (const auto& error : run_each(groups_of(3), [&](int rank, const Group& group) {
         torch::nn::Sequential net(torch::nn::Linear(16, 16), torch::nn::Linear(16, 4));
         torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01));
         DataParallel dp(*net, sgd, group,
                         {.buckets = given(Fusion::parse("all")),
                          .slow_ranks = limits,
                          .say = [&](const std::string& sentence) { said += sentence + "\n"; }});
         for (int step = 0; step < 60; ++step) {
           std::this_thread::sleep_for(std::chrono::milliseconds(2));
           if (rank == 2) std::this_thread::sleep_for(sleep);
           net->forward(torch::ones({2, 16})).square().mean().backward();
           dp.step();
         }
       }))
    EXPECT_EQ(what_of(error), "");
  return said;
}

constexpr SlowRankLimits kSoon{.behind = 0.5, .windows = 3, .window_seconds = 0.02, .first_step = 8};

TEST(Stragglers, AreNamedByRank0) {
  EXPECT_THAT(
      said_of(std::chrono::milliseconds(8), kSoon),
      AllOf(HasSubstr("rank 2 on host "), HasSubstr("data, forward pass"), Not(HasSubstr("rank 1 on"))));
}

TEST(Stragglers, AreNotLookedForWhereNobodyAsks) {
  EXPECT_EQ(said_of(std::chrono::milliseconds(8), std::nullopt), "");
}

}  // namespace
}  // namespace dear::stragglers_test
