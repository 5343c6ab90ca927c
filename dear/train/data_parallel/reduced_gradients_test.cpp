// Gradients that a program changes as a whole between backward and step(), the same on every rank.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/one_process.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::reduced_gradients_test {
namespace {

using ::testing::HasSubstr;
using train::testing::adamw_options;
using train::testing::expect_as_one_process;
using train::testing::groups_of;
using train::testing::Job;
using train::testing::message_of;
using train::testing::Net;
using train::testing::run_all;
using train::testing::run_each;

const std::vector<std::string> kPolicies{"serial", "wfbp", "dear-replicated", "dear"};

// By the largest magnitude of each whole gradient.
void normalise(Job& job) {
  if (job.dp != nullptr) job.dp->reduce_gradients();
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& tensor : job.net->parameters()) {
    torch::Tensor gradient = tensor.grad();
    gradient.div_(1 + gradient.abs().max());
  }
}

void four_steps(Job& job) {
  for (int step = 0; step < 4; ++step) {
    job.backward(step);
    normalise(job);
    if (step == 2) normalise(job);  // what was made of them is what comes of them
    job.step();
    if (job.dp != nullptr && step == 1) job.dp->regroup(Fusion::parse("all"));
  }
}

TEST(ReducedGradients, AreThoseOfOneProcess) { expect_as_one_process(four_steps, {.policies = kPolicies}); }

TEST(ReducedGradients, AreThoseOfOneProcessOnSlowRanksAndChunks) {
  expect_as_one_process(
      four_steps,
      {.ranks = {2}, .policies = kPolicies, .options = {.buckets = given(Fusion())}, .slow = true});
  expect_as_one_process(four_steps,
                        {.ranks = {3},
                         .policies = {"dear"},
                         .options = {.buckets = given(Fusion::parse("layer")), .one_copy = true}});
}

TEST(ReducedGradients, AreRefusedWhereUpdatesComeBeforeThem) {
  for (const int ranks : {1, 2}) {
    run_all(ranks, [&](int rank, Group group) {
      Net net;
      torch::optim::AdamW adamw(net->parameters(), adamw_options());
      DataParallel dp(*net, adamw, std::move(group), {.policy = "dear-eager", .buckets = given(Fusion())});
      const std::string refusal = message_of<ConfigError>([&] { dp.reduce_gradients(); });
      EXPECT_THAT(refusal, HasSubstr("rank " + std::to_string(rank)));
      EXPECT_THAT(refusal, HasSubstr("dear-eager"));
    });
  }
}

TEST(ReducedGradients, RanksThatCallSomethingElseAreToldSo) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    Net net;
    torch::optim::AdamW adamw(net->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group), {.buckets = given(Fusion())});
    Job{net, adamw, &dp, rank, 2}.backward(0);
    if (rank == 0)
      dp.reduce_gradients();
    else
      dp.clip_gradients_by_value(1);
  });
  for (const auto& error : errors)
    EXPECT_THAT(message_of<MismatchError>([&] { std::rethrow_exception(error); }), HasSubstr("called"));
}

}  // namespace
}  // namespace dear::reduced_gradients_test
