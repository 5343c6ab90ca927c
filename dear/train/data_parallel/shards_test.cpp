// Shards of unequal sizes: the bits of equal ones, less to update on some ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/data_parallel/watch.h"

namespace dear::shards_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::run_each;
using train::testing::slow_groups;
using train::testing::what_of;

constexpr int kRanks = 3;
const BucketChoice kBuckets = given(Fusion::parse("6KiB"));

torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Linear(40, 50), torch::nn::Linear(50, 30));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& tensor : net->parameters())
    tensor.copy_(0.2 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  return net;
}

using Groups = std::function<std::vector<Group>()>;

std::vector<Group> groups_of_messages() {
  std::vector<Group> groups;
  for (auto& channels : channels::testing::make_thread_channels(kRanks))
    groups.emplace_back(message_programs::make_program_backend(std::move(channels), {.reproducible = true}),
                        Group::Options{});
  return groups;
}

struct Trained {
  std::vector<torch::Tensor> values;
  std::vector<std::int64_t> state_bytes;  // by rank
};

// With clipping, a step that is given up and buckets that change, so that all that goes by shards is in it.
Trained train(const Groups& groups, const DataParallelOptions& options) {
  Trained trained{.values = {}, .state_bytes = std::vector<std::int64_t>(kRanks)};
  const auto errors = run_each(groups(), [&](int rank, const Group& group) {
    torch::nn::Sequential net = make_net();
    torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(0.01));
    DataParallel dp(*net, adamw, group, options);
    const bool changes = options.policy != "dear-eager";
    for (int step = 0; step < 8; ++step) {
      const torch::Tensor x =
          torch::cos(torch::arange(160, torch::kFloat32) + 10 * step + rank).view({4, 40});
      net->forward(x).square().mean().backward();
      if (changes && step == 3) dp.clip_gradients_by_norm(0.01);
      changes&& step == 4 ? dp.discard_step() : dp.step();
      if (step == 5) dp.regroup(Fusion::parse("all"));
      if (step == 6 && !options.shards.empty()) dp.reshard({0, 3, 1});
      if (step == 6 && !options.shards.empty()) dp.reshard(options.shards);
    }
    trained.state_bytes[static_cast<std::size_t>(rank)] = dp.watch().memory().optimizer_state;
    const auto state = dp.optimizer_state();
    dp.synchronize();
    if (rank != kRanks - 1) return;
    for (const torch::Tensor& one : net->parameters()) trained.values.push_back(one.detach().clone());
    for (const auto& one : state)
      for (const auto& [name, vector] : one.state->vectors) trained.values.push_back(vector);
  });
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return trained;
}

void expect_equal(const Trained& found, const Trained& expected) {
  ASSERT_EQ(found.values.size(), expected.values.size());
  for (std::size_t i = 0; i < found.values.size(); ++i)
    EXPECT_TRUE(torch::equal(found.values[i], expected.values[i])) << "tensor " << i;
}

TEST(UnequalShards, TrainToTheBitsOfEqualOnes) {
  for (const char* policy : {"dear", "dear-eager", "dear-replicated", "wfbp"}) {
    const Groups in_memory = [] { return groups_of(kRanks); };
    const Trained equal = train(in_memory, {.policy = policy, .buckets = kBuckets});
    for (const std::vector<double>& weights : {std::vector<double>{1, 0, 2}, {0, 0, 1}})
      expect_equal(train(in_memory, {.policy = policy, .buckets = kBuckets, .shards = weights}), equal);
    expect_equal(train(groups_of_messages, {.policy = policy, .buckets = kBuckets, .shards = {1, 0, 2}}),
                 equal);
  }
}

TEST(UnequalShards, AreInProportionToTheirWeights) {
  const Trained trained = train([] { return groups_of(kRanks); }, {.buckets = kBuckets, .shards = {4, 0, 1}});
  const auto of = [&](int rank) { return static_cast<double>(trained.state_bytes[rank]); };
  EXPECT_NEAR(of(0) / of(2), 4, 0.3);
  EXPECT_LT(of(1), 1024) << "a line of each bucket";
}

TEST(UnequalShards, AreRefusedOnEveryRank) {
  const auto refusals = [](std::vector<Group> groups,
                           const std::function<DataParallelOptions(int)>& options) {
    std::vector<std::string> texts;
    for (const auto& error : run_each(std::move(groups), [&](int rank, const Group& group) {
           torch::nn::Sequential net = make_net();
           torch::optim::SGD sgd(net->parameters(), 0.1);
           const DataParallel dp(*net, sgd, group, options(rank));
         }))
      texts.push_back(what_of(error));
    return texts;
  };
  const auto weights = [](std::vector<double> all) {
    return [all](int) { return DataParallelOptions{.buckets = kBuckets, .shards = all}; };
  };
  EXPECT_THAT(refusals(groups_of(2), weights({1, 2, 3})), Each(HasSubstr("3 weights of shards for 2 ranks")));
  EXPECT_THAT(refusals(groups_of(2), weights({1, -2})), Each(HasSubstr("-2 for rank 1")));
  EXPECT_THAT(refusals(groups_of(2), weights({std::nan(""), 1})), Each(HasSubstr("nan for rank 0")));
  EXPECT_THAT(refusals(groups_of(2), weights({0, 0})), Each(HasSubstr("all 0")));
  EXPECT_THAT(refusals(slow_groups(2), weights({1, 2})), Each(HasSubstr("equal shards only")));
  EXPECT_THAT(
      refusals(groups_of(2),
               [](int rank) { return DataParallelOptions{.buckets = kBuckets, .shards = {1, 1.0 + rank}}; }),
      Each(HasSubstr("weights of shards")));
  EXPECT_THAT(refusals(groups_of(2),
                       [](int) {
                         return DataParallelOptions{
                             .buckets = kBuckets, .ownership = Ownership::whole, .shards = {1, 2}};
                       }),
              Each(HasSubstr("equal shards")));
}

}  // namespace
}  // namespace dear::shards_test
