// What a program writes into parameters between steps: averages of weights, clipping of weights, masks, new
// values.

#include <gtest/gtest.h>
#include <torch/types.h>

#include "dear/train/data_parallel/testing/one_process.h"

namespace dear::writes_test {
namespace {

using train::testing::expect_as_one_process;
using train::testing::fill;
using train::testing::Job;
using train::testing::kInputs;
using train::testing::Program;
using train::testing::rows;

constexpr int kSteps = 6;

using Tensors = std::vector<torch::Tensor>;

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const torch::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

torch::Tensor evaluate(Job& job) {
  return job.net->forward(rows(99, 0, 3, kInputs).inputs.to(job.type)).detach().clone();
}

// An average of the weights, as a user writes it, that stands in for them while they are evaluated.
template <typename Swap>
Program averaging(Swap swap) {
  return [swap](Job& job) {
    Tensors average = copies_of(job.net->parameters());
    for (int step = 0; step < kSteps; ++step) {
      job.train(step);
      const torch::NoGradGuard no_grad;
      const Tensors parameters = job.net->parameters();
      for (std::size_t i = 0; i < average.size(); ++i) average[i].lerp_(parameters[i], 0.25);
      if (step % 2 == 1) swap(job, average);
    }
    job.results.insert(job.results.end(), average.begin(), average.end());
  };
}

void swap_by_copying(Job& job, const Tensors& average) {
  Tensors parameters = job.net->parameters();
  const Tensors own = copies_of(parameters);
  for (std::size_t i = 0; i < own.size(); ++i) parameters[i].copy_(average[i]);
  job.results.push_back(evaluate(job));
  for (std::size_t i = 0; i < own.size(); ++i) parameters[i].copy_(own[i]);
}

void swap_memory(Job& job, const Tensors& average) {
  Tensors parameters = job.net->parameters();
  Tensors own;
  for (const torch::Tensor& parameter : parameters) own.push_back(parameter.variable_data());
  for (std::size_t i = 0; i < own.size(); ++i) parameters[i].set_data(average[i]);
  job.results.push_back(evaluate(job));
  for (std::size_t i = 0; i < own.size(); ++i) parameters[i].set_data(own[i]);
}

void swap_memory_for_copies(Job& job, const Tensors& average) {
  Tensors parameters = job.net->parameters();
  const Tensors own = copies_of(parameters);
  for (std::size_t i = 0; i < own.size(); ++i) parameters[i].set_data(average[i].clone());
  job.results.push_back(evaluate(job));
  for (std::size_t i = 0; i < own.size(); ++i) parameters[i].set_data(own[i]);
}

template <typename Write>
Program writing(Write write) {
  return [write](Job& job) {
    for (int step = 0; step < kSteps; ++step) {
      job.train(step);
      const torch::NoGradGuard no_grad;
      write(job, step);
    }
  };
}

const std::vector<std::pair<std::string, Program>>& in_place() {
  static const std::vector<std::pair<std::string, Program>> all = {
      {"AverageThatIsCopiedInAndOut", averaging(swap_by_copying)},
      {"AverageWhoseMemoryIsSwappedInAndOut", averaging(swap_memory)},
      {"WeightsThatAreClipped", writing([](Job& job, int) {
         for (torch::Tensor parameter : job.net->parameters()) parameter.clamp_(-0.1, 0.1);
       })},
      {"WeightsThatAreClippedThroughTheirData", writing([](Job& job, int) {
         for (const torch::Tensor& parameter : job.net->parameters())
           parameter.variable_data().clamp_(-0.1, 0.1);
       })},
      {"MaskThatIsAppliedAfterEachStep", writing([](Job& job, int) {
         torch::Tensor weight = job.net->second->weight;
         weight.mul_((torch::arange(weight.numel()) % 3 > 0).view_as(weight).to(job.type));
       })},
      {"LayerThatBeginsAnew", writing([](Job& job, int step) {
         if (step == 2) fill(job.net->second->weight, 7);
         if (step == 3) job.net->head->bias.zero_();
       })},
      {"VectorsThatAreScaledToTheirNorm", writing([](Job& job, int) {
         torch::Tensor weight = job.net->first->weight;
         weight.div_(weight.norm());
       })},
  };
  return all;
}

class InPlace : public ::testing::TestWithParam<std::size_t> {};

TEST_P(InPlace, AsOneProcess) { expect_as_one_process(in_place()[GetParam()].second); }

// Right after step() the parameters are on the wire.
TEST_P(InPlace, WhileParametersAreOnTheWire) {
  expect_as_one_process(in_place()[GetParam()].second,
                        {.ranks = {2}, .policies = {"dear-replicated", "dear", "dear-eager"}, .slow = true});
}

TEST_P(InPlace, AreFollowedByMasters) {
  expect_as_one_process(
      in_place()[GetParam()].second,
      {.ranks = {1, 2}, .policies = {"wfbp", "dear", "dear-eager"}, .type = torch::kBFloat16});
}

INSTANTIATE_TEST_SUITE_P(Writes, InPlace, ::testing::Range<std::size_t>(0, 7),
                         [](const auto& info) { return in_place()[info.param].first; });

TEST(Writes, BetweenBackwardAndStep) {
  expect_as_one_process(
      [](Job& job) {
        for (int step = 0; step < kSteps; ++step) {
          job.backward(step);
          {
            const torch::NoGradGuard no_grad;
            for (torch::Tensor parameter : job.net->parameters()) parameter.mul_(0.9);
          }
          job.step();
        }
      },
      {.ranks = {2}, .policies = {"serial", "wfbp", "dear-replicated", "dear"}});
}

TEST(Writes, OfOneCopyReplaceItsMemory) {
  DataParallelOptions options{.buckets = given(Fusion::parse("2KiB")), .one_copy = true};
  expect_as_one_process(averaging(swap_memory_for_copies),
                        {.ranks = {2}, .policies = {"dear"}, .options = options});
}

TEST(Writes, AreMovedToOtherBuckets) {
  expect_as_one_process(
      [](Job& job) {
        for (int step = 0; step < kSteps; ++step) {
          job.train(step);
          const torch::NoGradGuard no_grad;
          job.net->second->weight.clamp_(-0.1, 0.1);
          if (job.dp != nullptr) job.dp->regroup(Fusion::parse(step % 2 == 0 ? "all" : "layer"));
        }
      },
      {.ranks = {2}});
}

}  // namespace
}  // namespace dear::writes_test
