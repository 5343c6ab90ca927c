// Shards that follow measured speeds.

#include "dear/train/data_parallel/shard_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/shaped/pair_links.h"
#include "dear/platform/cluster/pair_cluster.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::shard_changes_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::run_each;
using train::testing::what_of;

constexpr int kRanks = 3;
const BucketChoice kBuckets = given(Fusion::parse("6KiB"));
constexpr ShardMeasuring kMeasuring{.window = 4, .drift = 1e6, .least_gain = 1.05, .most_cost = 1e9};

// Ranks over messages; the last one's link carries `slow` bytes a second, the others' ten times as many.
std::vector<Group> unequal_links(double slow) {
  PairCluster cluster;
  cluster.name = "one slow link";
  for (const char* name : {"a", "b", "c"})
    cluster.devices.push_back({.name = name, .flops_per_second = 1e9, .memory_bytes = 1'000'000'000});
  cluster.bytes_per_second = {{0, 10 * slow, slow}, {10 * slow, 0, slow}, {slow, slow, 0}};
  cluster.latency_seconds = {{0, 1e-5, 1e-5}, {1e-5, 0, 1e-5}, {1e-5, 1e-5, 0}};
  std::vector<Group> groups;
  for (auto& channels : channels::testing::make_thread_channels(kRanks))
    groups.emplace_back(message_programs::make_program_backend(
                            channels::make_pair_links(std::move(channels), cluster), {.reproducible = true}),
                        Group::Options{});
  return groups;
}

torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Linear(40, 50), torch::nn::Linear(50, 30));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& tensor : net->parameters())
    tensor.copy_(0.2 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  return net;
}

TEST(SpeedsOfLinks, AreThoseOfSendersAndReceivers) {
  for (const auto& error : run_each(unequal_links(2e6), [](int /*rank*/, const Group& group) {
         const std::vector<RankSpeed> speeds = train::measure_speeds(group, {7, 0, 9});
         for (std::size_t rank = 0; rank < kRanks; ++rank) {
           const double expected = rank == kRanks - 1 ? 2e6 : 2e7;
           EXPECT_GT(speeds[rank].send, 0.5 * expected) << rank;
           EXPECT_LT(speeds[rank].send, 1.1 * expected) << rank;
           EXPECT_GT(speeds[rank].receive, 0.5 * expected) << rank;
           EXPECT_LT(speeds[rank].receive, 1.1 * expected) << rank;
         }
         EXPECT_EQ(speeds[0].update, 7);
         EXPECT_EQ(speeds[1].update, 0);
       }))
    EXPECT_EQ(what_of(error), "");
}

struct Trained {
  std::vector<torch::Tensor> values;
  std::string said;
};

Trained train(std::vector<Group> groups, std::optional<ShardMeasuring> measuring) {
  Trained trained;
  const auto errors = run_each(std::move(groups), [&](int rank, const Group& group) {
    torch::nn::Sequential net = make_net();
    torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(0.01));
    DataParallel dp(*net, adamw, group,
                    {.policy = "wfbp",
                     .buckets = kBuckets,
                     .measured_shards = measuring,
                     .say = [&](const std::string& sentence) {
                       if (rank == 0) trained.said += sentence + "\n";
                     }});
    for (int step = 0; step < 14; ++step) {
      const torch::Tensor x =
          torch::cos(torch::arange(160, torch::kFloat32) + 10 * step + rank).view({4, 40});
      net->forward(x).square().mean().backward();
      step == 5 ? dp.discard_step() : dp.step();
    }
    dp.synchronize();
    if (rank != 0) return;
    for (const torch::Tensor& one : net->parameters()) trained.values.push_back(one.detach().clone());
  });
  for (const auto& error : errors) EXPECT_EQ(what_of(error), "");
  return trained;
}

TEST(ShardChanges, FollowASlowLinkAndChangeNoBit) {
  const Trained measured = train(unequal_links(2e6), kMeasuring);
  EXPECT_THAT(measured.said, AllOf(HasSubstr("MB/s by rank"), HasSubstr("of each bucket from now on")));
  const Trained equal = train(unequal_links(1e9), std::nullopt);
  ASSERT_EQ(measured.values.size(), equal.values.size());
  for (std::size_t i = 0; i < equal.values.size(); ++i)
    EXPECT_TRUE(torch::equal(measured.values[i], equal.values[i])) << i;
}

TEST(ShardChanges, AreNoneWhereRanksAreAlike) {
  EXPECT_EQ(train(groups_of(1), kMeasuring).said, "");
  ShardMeasuring patient = kMeasuring;
  patient.least_gain = 1e6;
  EXPECT_EQ(train(groups_of(2), patient).said, "");
}

TEST(ShardChanges, AreRefusedOnEveryRank) {
  const auto refused = [](const std::function<DataParallelOptions(int)>& options) {
    std::string all;
    for (const auto& error : run_each(groups_of(2), [&](int rank, const Group& group) {
           torch::nn::Sequential net = make_net();
           torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01));
           DataParallel dp(*net, sgd, group, options(rank));
         }))
      all += what_of(error) + "\n";
    return all;
  };
  EXPECT_THAT(refused([](int rank) {
                return DataParallelOptions{.buckets = kBuckets,
                                           .measured_shards = ShardMeasuring{.window = 4 + rank}};
              }),
              HasSubstr("measured shards"));
  EXPECT_THAT(refused([](int) {
                return DataParallelOptions{.buckets = kBuckets,
                                           .measured_shards = ShardMeasuring{.window = 0}};
              }),
              HasSubstr("give a window"));
  EXPECT_THAT(refused([](int) {
                return DataParallelOptions{
                    .buckets = kBuckets, .ownership = Ownership::whole, .measured_shards = ShardMeasuring{}};
              }),
              HasSubstr("equal shards"));
}

}  // namespace
}  // namespace dear::shard_changes_test
