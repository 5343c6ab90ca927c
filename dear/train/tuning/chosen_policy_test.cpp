// Policies that the first steps choose.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/bucket_choice.h"
#include "dear/train/data_parallel/bucket_chooser.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/net.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/tuning/tuned.h"

namespace dear::tuning::chosen_policy_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using train::testing::kFeatures;
using train::testing::make_net;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;

// Options of a policy, or of a choice among several.
DataParallelOptions options_of(const std::string& policy, BucketChoice buckets = tuned()) {
  const std::vector<std::string> candidates = automatic_candidates(policy);
  if (candidates.empty()) return {.policy = policy, .buckets = std::move(buckets)};
  return {.buckets = with_chosen_policy(candidates, std::move(buckets))};
}

struct Job {
  Job(const Group& group, DataParallelOptions options)
      : rank(group.rank()),
        net(make_net()),
        adamw(net->parameters(), 1e-3),
        parallel(*net, adamw, group, std::move(options)) {}
  void backward() {
    const auto batch = rows(taken++, 2 * rank, 2, kFeatures);
    torch::mse_loss(net->forward(batch.inputs), batch.targets).backward();
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      backward();
      parallel.step();
    }
  }
  int rank;
  torch::nn::Sequential net;
  torch::optim::AdamW adamw;
  DataParallel parallel;
  int taken = 0;
};

// One layer, whose parameters take `r` seconds in an all-reduce of two ranks.
Workload one_layer(double f, double b) {
  Workload workload;
  workload.name = "one layer";
  workload.tensors.push_back({.name = "weight", .elements = 1'000'000});
  workload.layers.push_back(
      {.name = "layer", .tensors = {TensorId{0}}, .forward_seconds = f, .backward_seconds = b});
  return workload;
}

// What is chosen among the candidates, on two ranks alike.
std::string chosen(const std::vector<std::string>& candidates, const Workload& workload,
                   double beta_seconds_per_byte) {
  std::vector<std::string> by_rank(2);
  run_all(2, [&](int rank, Group group) {
    const auto chooser = with_chosen_policy(candidates, given(Fusion::parse("all")))
                             .make({.group = std::move(group),
                                    .policy = candidates.front(),
                                    .policies = candidates,
                                    .one_copy = false,
                                    .device = ""});
    static_cast<void>(chooser->start(workload));
    const train::NewBuckets next =
        chooser->begin(workload, {.alpha_seconds = 0, .beta_seconds_per_byte = beta_seconds_per_byte},
                       Fusion::parse("all")(workload));
    EXPECT_THAT(next.why, AllOf(StartsWith("policy " + next.policy + ": "), HasSubstr(candidates[1])));
    by_rank[static_cast<std::size_t>(rank)] = next.policy;
  });
  EXPECT_EQ(by_rank[0], by_rank[1]);
  return by_rank[0];
}

// One layer in one bucket: nothing hides an all-reduce of wfbp, nor a reduce-scatter or all-gather of dear,
// so that both take f + b + r: wfbp then asks less of the host. Among others the first candidate stays.
TEST(ChosenPolicy, IsWfbpOrStaysWhereNothingIsGained) {
  const Workload workload = one_layer(1e-3, 2e-3);
  for (const double beta : {1e-9, 1e-15}) {
    EXPECT_EQ(chosen({"dear", "wfbp"}, workload, beta), "wfbp");
    EXPECT_EQ(chosen({"wfbp", "dear"}, workload, beta), "wfbp");
    EXPECT_EQ(chosen({"dear", "dear-replicated"}, workload, beta), "dear");
    EXPECT_EQ(chosen({"dear-replicated", "dear"}, workload, beta), "dear-replicated");
  }
}

// Two layers of 4 MB, each with a bucket, f = b = 4 ms a layer and r = 4 ms for each half of an all-reduce of
// a bucket. wfbp: the all-reduce of the second layer hides half under the backward of the first, and all of
// the first layer's is exposed. dear: the reduce-scatter of the second layer is hidden, and the all-gathers
// but for the first.
TEST(ChosenPolicy, TakesTheFaster) {
  Workload workload = one_layer(4e-3, 4e-3);
  workload.tensors.push_back({.name = "second", .elements = 1'000'000});
  workload.layers.push_back(
      {.name = "second", .tensors = {TensorId{1}}, .forward_seconds = 4e-3, .backward_seconds = 4e-3});
  std::string policy;
  run_all(2, [&](int rank, Group group) {
    const auto chooser = with_chosen_policy({"wfbp", "dear"}, given(Fusion::parse("layer")))
                             .make({.group = std::move(group),
                                    .policy = "wfbp",
                                    .policies = {"wfbp", "dear"},
                                    .one_copy = false,
                                    .device = ""});
    static_cast<void>(chooser->start(workload));
    const train::NewBuckets next = chooser->begin(
        workload, {.alpha_seconds = 0, .beta_seconds_per_byte = 2e-9}, Fusion::parse("layer")(workload));
    if (rank == 0) policy = next.policy;
  });
  EXPECT_EQ(policy, "dear");
}

std::string digest_of(const std::string& policy, BucketChoice buckets) {
  std::string digest;
  run_all(2, [&](int rank, Group group) {
    std::vector<std::string> said;
    DataParallelOptions options = options_of(policy, buckets);
    options.profile_steps = 2;
    options.say = [&](const std::string& sentence) { said.push_back(sentence); };
    Job job(group, std::move(options));
    job.steps(50);  // a trial takes 30 of them
    job.parallel.synchronize();
    if (rank != 0) return;
    digest = parameter_digest(*job.net);
    EXPECT_THAT(job.parallel.schedule().policy(), AnyOf("wfbp", "dear", "dear-eager", "serial"));
    if (policy == "serial") return;
    ASSERT_FALSE(said.empty());
    EXPECT_THAT(said.back(), StartsWith("policy " + std::string(job.parallel.schedule().policy()) + ": "));
    if (said.size() == 1) return;
    EXPECT_THAT(said, ElementsAre(EndsWith("; wfbp is tried after it"),
                                  StartsWith("policy wfbp: tried after "), HasSubstr(": a step took ")));
  });
  return digest;
}

// From updates of shards to updates of everything, and the other way round, with the state of AdamW.
TEST(ChosenPolicy, ChangesNoBit) {
  const BucketChoice all = given(Fusion::parse("all"));
  const std::string expected = digest_of("serial", all);
  for (const char* policy : {"auto", "auto=wfbp,dear", "auto=dear,serial", "auto=serial,dear-eager",
                             "auto=dear,wfbp,dear-eager"}) {
    EXPECT_EQ(digest_of(policy, all), expected) << policy;
    EXPECT_EQ(digest_of(policy, planned()), expected) << policy;
    EXPECT_EQ(digest_of(policy, tuned({.start = Fusion::parse("all"), .budget_iterations = 1e9})), expected)
        << policy;
  }
}

TEST(ChosenPolicy, RefusesFromTheFirstStepOnWhatACandidateCannot) {
  run_all(2, [](int, Group group) {
    const auto refusal = [&](DataParallelOptions options) {
      return message_of<ConfigError>([&] { Job(group, std::move(options)); });
    };
    DataParallelOptions options = options_of("auto");
    options.one_copy = true;
    EXPECT_THAT(refusal(options), HasSubstr("wfbp"));
    options = options_of("auto=dear,dear-eager");
    options.compression = Compression::parse("top-k:0.5");
    EXPECT_THAT(refusal(options), HasSubstr("dear-eager"));
    options = options_of("auto");
    options.compression = Compression::parse("random-block:0.01,scope=model");
    EXPECT_THAT(refusal(options), HasSubstr("choice of a policy"));
    EXPECT_THAT(refusal({.policy = "auto"}), HasSubstr("\"auto\""));
    Job eager(group, options_of("auto=dear,dear-eager"));
    eager.backward();
    EXPECT_THAT(message_of<ConfigError>([&] { eager.parallel.clip_gradients_by_norm(1.0); }),
                HasSubstr("dear-eager"));
    eager.parallel.step();
    Job plain(group, options_of("auto"));
    plain.backward();
    EXPECT_GT(plain.parallel.clip_gradients_by_norm(1.0), 0.0);
    plain.parallel.step();
  });
}

}  // namespace
}  // namespace dear::tuning::chosen_policy_test
