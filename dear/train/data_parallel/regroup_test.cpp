// DataParallel::regroup(): what changes, and what is refused.

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::regroup_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

constexpr std::int64_t kFeatures = 16;

// The same on whichever thread.
torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                            torch::nn::Linear(64, 3));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& tensor : net->parameters())
    tensor.copy_(0.2 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  return net;
}

struct Job {
  explicit Job(Group group, DataParallelOptions options = {.buckets = given()})
      : net(make_net()), adamw(net->parameters(), 1e-3), parallel(*net, adamw, group, std::move(options)) {}
  void backward() {
    const auto batch = rows(taken, 0, 2, kFeatures);
    torch::mse_loss(net->forward(batch.inputs), batch.targets).backward();
  }
  void step() {
    backward();
    parallel.step();
    ++taken;
  }
  torch::nn::Sequential net;
  torch::optim::AdamW adamw;
  DataParallel parallel;
  int taken = 0;
};

TEST(Regroup, MakesTheBucketsThatItIsAskedFor) {
  run_all(2, [](int, Group group) {
    Job job(group);
    job.parallel.regroup(Fusion::parse("layer"));  // the option: there are no buckets yet
    job.step();
    EXPECT_EQ(job.parallel.grouping().size(), 3U);
    job.parallel.regroup(Fusion::parse("all"));
    EXPECT_EQ(job.parallel.grouping().size(), 1U);
    EXPECT_EQ(job.parallel.statistics().buckets, 1U);
    job.step();
    EXPECT_EQ(job.parallel.statistics().iterations, 2);
    job.parallel.synchronize();
  });
}

TEST(Regroup, IsRefusedWhileGradientsOfTheNextStepAreThere) {
  run_all(2, [](int, Group group) {
    Job job(group, {.buckets = given(Fusion::parse("layer"))});
    job.step();
    job.backward();
    EXPECT_THROW(job.parallel.regroup(Fusion::parse("all")), ConfigError);
    job.parallel.step();
    job.parallel.regroup(Fusion::parse("all"));
    EXPECT_EQ(job.parallel.grouping().size(), 1U);
  });
}

TEST(Regroup, ToBucketsOfAnotherModelLeavesTheOldOnes) {
  run_all(2, [](int, Group group) {
    Job job(group, {.buckets = given(Fusion::parse("layer"))});
    job.step();
    EXPECT_THROW(job.parallel.regroup(Fusion(ByName{.buckets = {{"another.weight"}}, .source = "a test"})),
                 ConfigError);
    EXPECT_EQ(job.parallel.grouping().size(), 3U);
    job.step();
    job.parallel.synchronize();
  });
}

TEST(Regroup, DifferentlyOnRanksIsAMismatchAndLeavesTheOldBuckets) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    Job job(group, {.buckets = given(Fusion::parse("layer"))});
    job.step();
    try {
      job.parallel.regroup(Fusion::parse(rank == 0 ? "all" : "1KiB"));
      ADD_FAILURE() << "nothing was noticed";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("schedule"));
    }
    EXPECT_EQ(job.parallel.grouping().size(), 3U);
    job.step();
    job.parallel.synchronize();
  });
  for (const std::exception_ptr& error : errors) EXPECT_EQ(what_of(error), "");
}

TEST(Regroup, ThatOneRankAloneRefusesAllRefuse) {
  run_all(2, [](int rank, Group group) {
    Job job(group, {.buckets = given(Fusion::parse("layer"))});
    job.step();
    const Fusion wrong(ByName{.buckets = {{"another.weight"}}, .source = "a test"});
    EXPECT_THROW(job.parallel.regroup(rank == 1 ? wrong : Fusion::parse("all")), ConfigError);
    EXPECT_EQ(job.parallel.grouping().size(), 3U);
    job.step();
    job.parallel.regroup(Fusion::parse("all"));
    job.step();
    job.parallel.synchronize();
  });
}

TEST(Regroup, IsMarkedInATraceThatGoesOn) {
  run_all(2, [](int rank, Group group) {
    Job job(group, {.buckets = given(Fusion::parse("layer")), .record_trace = true});
    for (int i = 0; i < 3; ++i) job.step();
    job.parallel.regroup(Fusion::parse("all"));
    for (int i = 0; i < 3; ++i) job.step();
    const Trace trace = job.parallel.trace();
    EXPECT_THAT(trace.spans, Contains(AllOf(Field(&Span::name, "regroup: fusion all, 1 buckets"),
                                            Field(&Span::iteration, 3), Field(&Span::rank, rank))));
    double last = 0;
    std::set<std::int64_t> updates;
    for (const Span& span : trace.spans) {
      EXPECT_GE(span.begin_seconds, last);
      last = span.begin_seconds;
      if (span.activity == Activity::update) updates.insert(span.iteration);
    }
    EXPECT_EQ(updates, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_GT(job.parallel.profile().backward_seconds(), 0);
  });
}

TEST(Planned, BucketsAreMadeFromWhatWasMeasured) {
  std::vector<std::string> groupings(2);
  run_all(2, [&](int rank, Group group) {
    Job job(group, {.buckets = planned(Fusion::parse("all")), .profile_steps = 3, .record_trace = true});
    for (int i = 0; i < 4; ++i) job.step();
    EXPECT_EQ(job.parallel.grouping().size(), 1U);  // so far, as asked for
    job.step();
    for (const Bucket& bucket : job.parallel.grouping().buckets())
      groupings[rank] += std::to_string(bucket.tensors.size()) + " ";
    for (int i = 0; i < 3; ++i) job.step();
    const Trace trace = job.parallel.trace();
    EXPECT_THAT(trace.spans, Contains(AllOf(Field(&Span::name, ::testing::StartsWith("plan, ")),
                                            Field(&Span::iteration, 5))));
  });
  EXPECT_EQ(groupings[0], groupings[1]);
  EXPECT_NE(groupings[0], "");
}

TEST(Planned, RegroupEndsIt) {
  run_all(2, [&](int, Group group) {
    Job job(group, {.buckets = planned(Fusion::parse("all")), .profile_steps = 3});
    for (int i = 0; i < 3; ++i) job.step();
    job.parallel.regroup(Fusion::parse("layer"));
    for (int i = 0; i < 4; ++i) job.step();
    EXPECT_EQ(job.parallel.grouping().size(), 3U);
  });
}

TEST(Planned, NeedsAStepToMeasure) {
  run_all(1, [](int, Group group) {
    EXPECT_THROW(Job(group, {.buckets = planned(), .profile_steps = 0}), ConfigError);
  });
}

// What dear-eager gives up, each with a sentence of its own.
std::string refusal_of(const std::function<void(Job&)>& between, const std::string& policy = "dear-eager") {
  std::vector<std::string> said(2);
  const auto errors = run_each(groups_of(2), [&](int, Group group) {
    Job job(group, {.policy = policy, .buckets = given(Fusion::parse("layer"))});
    for (int i = 0; i < 3; ++i) job.step();
    job.backward();
    between(job);
    job.parallel.step();
    job.parallel.synchronize();
  });
  EXPECT_EQ(errors[0] == nullptr, errors[1] == nullptr);
  // The first to be refused ends the group, and the other may hear of that before its own refusal.
  const std::string first = what_of(errors[0]);
  return first.starts_with("rank 1 failed") ? what_of(errors[1]) : first;
}

void set_learning_rate(Job& job, double rate) {
  static_cast<torch::optim::AdamWOptions&>(job.adamw.param_groups()[0].options()).lr(rate);
}

TEST(DearEager, RefusesALearningRateThatChangesBetweenBackwardAndStep) {
  const auto change = [](Job& job) { set_learning_rate(job, 0.5); };
  EXPECT_THAT(refusal_of(change), HasSubstr("its learning rate, was changed"));
  EXPECT_EQ(refusal_of(change, "dear"), "");
}

TEST(DearEager, TakesALearningRateThatChangesAfterStep) {
  const auto digest = [](const std::string& policy) {
    std::string digest;
    run_all(2, [&](int rank, Group group) {
      Job job(group, {.policy = policy, .buckets = given(Fusion::parse("layer"))});
      for (int i = 0; i < 5; ++i) {
        job.step();
        set_learning_rate(job, 1e-2 / (i + 1));
      }
      job.parallel.synchronize();
      if (rank == 0) digest = parameter_digest(*job.net);
    });
    return digest;
  };
  EXPECT_EQ(digest("dear-eager"), digest("dear"));
}

TEST(DearEager, RefusesALookAtGradientsBetweenBackwardAndStep) {
  const auto clip = [](Job& job) { torch::nn::utils::clip_grad_norm_(job.net->parameters(), 1.0); };
  EXPECT_THAT(refusal_of(clip), HasSubstr("between backward and step()"));
  EXPECT_EQ(refusal_of(clip, "dear"), "");
}

}  // namespace
}  // namespace dear::regroup_test
