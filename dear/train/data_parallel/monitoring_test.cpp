// Hooks on buckets, and metrics of steps: for every policy, with other buckets meanwhile, and when they fail.

#include <atomic>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/net.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/data_parallel/watch.h"

namespace dear::monitoring_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using train::testing::groups_of;
using train::testing::kFeatures;
using train::testing::make_net;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Job {
  explicit Job(const Group& group, DataParallelOptions options = {.buckets = given(Fusion::parse("100KiB"))})
      : rank(group.rank()),
        net(make_net()),
        sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)),
        dp(*net, sgd, group, std::move(options)) {}
  void backward(float scale = 1) {
    const auto batch = rows(steps++, 2 * rank, 2, kFeatures);
    (torch::mse_loss(net->forward(batch.inputs), batch.targets) * scale).backward();
  }
  void step() {
    backward();
    dp.step();
  }
  std::vector<torch::Tensor> parameters() {
    dp.synchronize();
    std::vector<torch::Tensor> all;
    for (const torch::Tensor& tensor : net->parameters()) all.push_back(tensor.detach().clone());
    return all;
  }
  int rank;
  std::int64_t steps = 0;
  torch::nn::Sequential net;
  torch::optim::SGD sgd;
  DataParallel dp;
};

bool equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const torch::Tensor& x, const torch::Tensor& y) { return torch::equal(x, y); });
}

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const Policy& policy : training_policies()) names.emplace_back(policy.name);
  return names;
}

class Policies : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  [[nodiscard]] static DataParallelOptions options() {
    return {.policy = std::get<0>(GetParam()), .buckets = given(Fusion::parse("100KiB"))};
  }
  [[nodiscard]] static int ranks() { return std::get<1>(GetParam()); }
};

// Each rank doubles its gradients before, and halves the means after: nothing has changed, and each hook has
// seen every element of the model once a step.
TEST_P(Policies, HooksSeeEachElementOnceAndMayChangeIt) {
  constexpr int kSteps = 4;
  std::atomic<std::int64_t> before = 0;
  std::atomic<std::int64_t> after = 0;
  std::int64_t elements = 0;
  for (const torch::Tensor& tensor : make_net()->parameters()) elements += tensor.numel();
  run_all(ranks(), [&](int rank, const Group& group) {
    Job plain(group.duplicate(), options());
    Job job(group, options());
    std::set<std::int64_t> iterations;
    job.dp.watch().register_bucket_hook([&](BucketGradients& bucket) {
      iterations.insert(bucket.iteration);
      for (auto& [name, values, begin] : bucket.tensors) {
        before += values.numel();
        EXPECT_EQ(begin, 0);
        values.mul_(2);
      }
    });
    job.dp.watch().register_bucket_hook(
        [&](BucketGradients& bucket) {
          for (const auto& tensor : bucket.tensors) after += tensor.values.numel();
          bucket.flat.mul_(0.5);
        },
        HookAt::after_reduction);
    for (int i = 0; i < kSteps; ++i) {
      plain.step();
      job.step();
      if (i == 1) job.dp.regroup(Fusion::parse("layer"));
    }
    EXPECT_TRUE(equal(job.parameters(), plain.parameters())) << "rank " << rank;
    EXPECT_THAT(iterations, ElementsAre(0, 1, 2, 3));
  });
  EXPECT_EQ(before, kSteps * elements * ranks());
  const bool whole = ranks() > 1 && (options().policy == "serial" || options().policy == "wfbp" ||
                                     options().policy == "dear-replicated");
  EXPECT_EQ(after, kSteps * elements * (whole ? ranks() : 1));
}
INSTANTIATE_TEST_SUITE_P(All, Policies,
                         ::testing::Combine(::testing::ValuesIn(all_policies()), ::testing::Values(1, 2, 4)),
                         [](const auto& param) {
                           std::string name =
                               std::get<0>(param.param) + "On" + std::to_string(std::get<1>(param.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST(BucketHooks, RunInOrderUntilTheyAreRemoved) {
  run_all(2, [](int, const Group& group) {
    Job job(group, {.buckets = given(Fusion::parse("all"))});
    std::vector<int> calls;
    RemovableHandle first =
        job.dp.watch().register_bucket_hook([&](BucketGradients&) { calls.push_back(1); });
    RemovableHandle second;
    second = job.dp.watch().register_bucket_hook([&](BucketGradients&) {
      calls.push_back(2);
      second.remove();
    });
    job.step();
    EXPECT_THAT(calls, ElementsAre(1, 2));
    job.step();
    EXPECT_THAT(calls, ElementsAre(1, 2, 1));
    first.remove();
    first.remove();
    job.step();
    EXPECT_THAT(calls, SizeIs(3));
  });
}

// A parameter without a gradient stays as it is, unless a hook gives it one.
TEST(BucketHooks, UnusedParametersStayUnused) {
  run_all(2, [](int, const Group& group) {
    Job job(group);
    job.dp.watch().register_bucket_hook([](BucketGradients& bucket) { bucket.flat.mul_(0.5); });
    auto unused = job.net->parameters().back();
    job.step();
    job.dp.synchronize();
    const torch::Tensor was = unused.detach().clone();
    for (int i = 0; i < 2; ++i) {
      (job.net[0]->as<torch::nn::Linear>()->forward(torch::ones({1, kFeatures}))).sum().backward();
      job.dp.step();
    }
    job.dp.synchronize();
    EXPECT_TRUE(torch::equal(unused, was));
  });
}

TEST(BucketHooks, SeeGradientsBeforeCompressionAndAfterIt) {
  run_all(2, [](int, const Group& group) {
    Job job(group,
            {.buckets = given(Fusion::parse("all")), .compression = Compression::parse("top-k:0.1,ef")});
    torch::Tensor mine, mean;
    job.dp.watch().register_bucket_hook([&](BucketGradients& bucket) { mine = bucket.flat.clone(); });
    job.dp.watch().register_bucket_hook([&](BucketGradients& bucket) { mean = bucket.flat.clone(); },
                                        HookAt::after_reduction);
    job.step();
    job.dp.synchronize();
    EXPECT_GT(mine.count_nonzero().item<std::int64_t>(), mine.numel() / 2);
    EXPECT_LT(mean.count_nonzero().item<std::int64_t>(), mean.numel() / 4);
    EXPECT_GT(mean.count_nonzero().item<std::int64_t>(), 0);
  });
}

class Failing : public ::testing::TestWithParam<std::tuple<std::string, HookAt>> {};

TEST_P(Failing, EndTheStepOnEveryRankAndNameTheirs) {
  const auto [policy, at] = GetParam();
  const auto errors = run_each(groups_of(3), [&, policy = policy, at = at](int rank, const Group& group) {
    Job job(group, {.policy = policy, .buckets = given(Fusion::parse("100KiB"))});
    job.dp.watch().register_bucket_hook(
        [rank](BucketGradients& bucket) {
          if (rank == 1 && bucket.iteration == 2) throw std::range_error("no such noise");
        },
        at);
    for (int i = 0; i < 5; ++i) job.step();
    job.dp.synchronize();
  });
  EXPECT_THROW(std::rethrow_exception(errors[1]), std::range_error);
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(errors[rank]);
    EXPECT_THROW(std::rethrow_exception(errors[rank]), TransportError);
    EXPECT_THAT(what_of(errors[rank]), AllOf(HasSubstr("rank 1"), HasSubstr("hook"), HasSubstr("iteration 2"),
                                             HasSubstr("no such noise")));
  }
}
INSTANTIATE_TEST_SUITE_P(Hooks, Failing,
                         ::testing::Combine(::testing::Values("wfbp", "dear", "dear-eager"),
                                            ::testing::Values(HookAt::before_reduction,
                                                              HookAt::after_reduction)),
                         [](const auto& param) {
                           std::string name =
                               std::get<0>(param.param) +
                               (std::get<1>(param.param) == HookAt::before_reduction ? "Before" : "After");
                           std::erase(name, '-');
                           return name;
                         });

// ---- checks

// Element 7 of a weight of rank 1 becomes NaN in iteration 2, by a hook, which comes before the check.
void spoil(Job& job) {
  job.dp.watch().register_bucket_hook([rank = job.rank](BucketGradients& bucket) {
    if (rank != 1 || bucket.iteration != 2) return;
    for (auto& [name, values, begin] : bucket.tensors) {
      if (name == "2.weight") values.view(-1).slice(0, 7, 10).fill_(std::numeric_limits<float>::quiet_NaN());
    }
  });
}

const auto kSpoiled = AllOf(HasSubstr("rank 1"), HasSubstr("3 of 25600"), HasSubstr("'2.weight'"),
                            HasSubstr("layer 2,"), HasSubstr("index 7"), HasSubstr("iteration 2"));

class Checks : public ::testing::TestWithParam<std::string> {};

TEST_P(Checks, ErrorsNameRankTensorAndElementsOnEveryRank) {
  const auto errors = run_each(groups_of(3), [](int, const Group& group) {
    Job job(group, {.policy = GetParam(),
                    .buckets = given(Fusion::parse("100KiB")),
                    .check_gradients = GradientCheck::error});
    spoil(job);
    for (int i = 0; i < 5; ++i) job.step();
    job.dp.synchronize();
  });
  for (const std::exception_ptr& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THROW(std::rethrow_exception(error), Error);
    EXPECT_THAT(what_of(error), kSpoiled);
  }
}

TEST_P(Checks, SkipGivesTheStepUpOnEveryRank) {
  run_all(3, [](int, const Group& group) {
    DataParallelOptions options{.policy = GetParam(),
                                .buckets = given(Fusion::parse("100KiB")),
                                .check_gradients = GradientCheck::skip};
    if (GetParam() == "dear-eager") {
      EXPECT_THAT(message_of<ConfigError>([&] { Job(group, options); }), HasSubstr("dear-eager"));
      return;
    }
    Job job(group, options);
    Job plain(group.duplicate());
    spoil(job);
    std::vector<StepMetrics> all;
    job.dp.watch().on_step([&](const StepMetrics& one) { all.push_back(one); });
    for (int i = 0; i < 4; ++i) {
      job.step();
      i == 2 ? void(++plain.steps) : plain.step();
    }
    EXPECT_TRUE(equal(job.parameters(), plain.parameters()));
    ASSERT_THAT(all, SizeIs(4));
    EXPECT_EQ(all[1].nonfinite, "");
    EXPECT_EQ(all[2].given_up, 1);
    EXPECT_THAT(all[2].nonfinite, kSpoiled);
    EXPECT_EQ(job.dp.statistics().iterations, 3);
  });
}

TEST_P(Checks, OfParametersNameWhatAnUpdateSpoiled) {
  const auto errors = run_each(groups_of(2), [](int, const Group& group) {
    Job job(group,
            {.policy = GetParam(), .buckets = given(Fusion::parse("100KiB")), .check_parameters = true});
    for (int i = 0; i < 4; ++i) {
      if (i == 2) static_cast<torch::optim::SGDOptions&>(job.sgd.param_groups()[0].options()).lr(kInfinity);
      job.step();
    }
    job.dp.synchronize();
  });
  for (const std::exception_ptr& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(what_of(error), AllOf(HasSubstr("parameter '"), HasSubstr("iteration 2")));
  }
}
INSTANTIATE_TEST_SUITE_P(Under, Checks, ::testing::Values("wfbp", "dear-replicated", "dear", "dear-eager"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Check, OfARankAloneLooksAtItsOwnGradients) {
  for (const GradientCheck check : {GradientCheck::error, GradientCheck::skip}) {
    Job job(groups_of(1)[0], {.buckets = given(), .check_gradients = check});
    job.step();
    const std::vector<torch::Tensor> was = job.parameters();
    job.backward(kInfinity);
    if (check == GradientCheck::error) {
      EXPECT_THAT(message_of<Error>([&] { job.dp.step(); }),
                  AllOf(HasSubstr("rank 0"), HasSubstr("iteration 1")));
    } else {
      EXPECT_FALSE(job.dp.step({}));
    }
    EXPECT_TRUE(equal(job.parameters(), was));
  }
}

// ---- metrics

TEST_P(Policies, MetricsDescribeEachStep) {
  run_all(ranks(), [&](int rank, const Group& group) {
    Job job(group, options());
    std::vector<StepMetrics> all;
    job.step();
    RemovableHandle handle = job.dp.watch().on_step([&](const StepMetrics& one) { all.push_back(one); });
    for (int i = 0; i < 3; ++i) job.step();
    job.dp.regroup(Fusion::parse("all"));
    job.step();
    handle.remove();
    job.step();
    ASSERT_THAT(all, SizeIs(4));
    double exposed = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].rank, rank);
      EXPECT_EQ(all[i].ranks, ranks());
      EXPECT_EQ(all[i].iteration, static_cast<std::int64_t>(i) + 1);
      EXPECT_EQ(all[i].steps, 1);
      EXPECT_GT(all[i].seconds, 0);
      EXPECT_GE(all[i].overlap, 0);
      EXPECT_LE(all[i].overlap, 1);
      EXPECT_EQ(all[i].tuning, options().policy == "dear-eager" && ranks() > 1 ? "measuring" : "off");
      exposed += all[i].exposed_seconds;
    }
    EXPECT_LE(exposed, job.dp.statistics().exposed_seconds);
    if (ranks() == 1) return;
    double communication = 0;  // of step i it may end in the metrics of step i + 1
    for (const StepMetrics& one : all) communication += one.communication_seconds;
    EXPECT_GT(communication, 0);
    EXPECT_THAT(all[3].buckets, SizeIs(1));
    std::int64_t bytes = 0;
    for (const std::int64_t bucket : all[2].buckets) bytes += bucket;
    // Reduce-scatter and all-gather, or an all-reduce.
    if (options().policy == "wfbp" || options().policy == "serial") {
      EXPECT_DOUBLE_EQ(all[1].bytes, 2.0 * bytes * (ranks() - 1) / ranks());
    }
  });
}

// Over a whole run nothing is counted twice or lost: every byte of a step is sent once.
TEST(Metrics, AreMeansOfTheStepsSinceTheLastReport) {
  run_all(2, [](int, const Group& group) {
    Job job(group);
    std::vector<StepMetrics> all;
    job.dp.watch().on_step([&](const StepMetrics& one) { all.push_back(one); }, {.every = 3});
    for (int i = 0; i < 7; ++i) job.step();
    ASSERT_THAT(all, SizeIs(2));
    EXPECT_EQ(all[0].iteration, 2);
    EXPECT_EQ(all[1].iteration, 5);
    EXPECT_EQ(all[1].steps, 3);
  });
}

TEST(Metrics, NameScaleNormAndStepsThatWereGivenUp) {
  run_all(2, [](int rank, const Group& group) {
    Job job(group);
    std::vector<StepMetrics> all;
    job.dp.watch().on_step([&](const StepMetrics& one) { all.push_back(one); });
    job.backward();
    const double norm = job.dp.clip_gradients_by_norm(0.1);
    job.dp.step({.loss_scale = 8});
    job.backward(rank == 1 ? kInfinity : 1);
    EXPECT_FALSE(job.dp.step({.loss_scale = 4}));
    job.step();
    job.backward();
    job.dp.discard_step();
    job.step();
    ASSERT_THAT(all, SizeIs(4));
    EXPECT_EQ(all[0].gradient_norm, norm);
    EXPECT_EQ(all[0].loss_scale, 8);
    EXPECT_EQ(all[1].given_up, 1);
    EXPECT_EQ(all[1].loss_scale, 4);
    EXPECT_EQ(all[1].gradient_norm, std::nullopt);
    EXPECT_EQ(all[2].given_up, 0);
    EXPECT_EQ(all[3].steps, 2);
    EXPECT_EQ(all[3].given_up, 1);
    EXPECT_EQ(all[3].iteration, 4);
  });
}

TEST(Metrics, OfAllRanksAreReducedOnRank0) {
  run_all(4, [](int rank, const Group& group) {
    Job job(group);
    std::vector<StepMetrics> reduced, first;
    job.dp.watch().on_step([&](const StepMetrics& one) { reduced.push_back(one); },
                           {.every = 2, .report = Report::reduced});
    job.dp.watch().on_step([&](const StepMetrics& one) { first.push_back(one); }, {.report = Report::rank_0});
    for (int i = 0; i < 4; ++i) job.step();
    EXPECT_THAT(reduced, SizeIs(rank == 0 ? 2 : 0));
    EXPECT_THAT(first, SizeIs(rank == 0 ? 4 : 0));
    for (const StepMetrics& one : reduced) {
      ASSERT_EQ(one.over_ranks.count("seconds"), 1U);
      const OverRanks seconds = one.over_ranks.at("seconds");
      EXPECT_LE(seconds.min, one.seconds);
      EXPECT_GE(seconds.max, one.seconds);
      EXPECT_LE(seconds.min, seconds.mean);
      EXPECT_LE(seconds.mean, seconds.max);
    }
  });
}

TEST(Metrics, ACallbackThatThrowsLeavesStepAndTrainingGoesOn) {
  run_all(2, [](int rank, const Group& group) {
    Job plain(group.duplicate());
    Job job(group);
    job.dp.watch().on_step([rank](const StepMetrics& one) {
      if (rank == 1 && one.iteration == 1) throw std::range_error("enough");
    });
    for (int i = 0; i < 3; ++i) {
      plain.step();
      if (rank == 1 && i == 1) {
        EXPECT_THROW(job.step(), std::range_error);
      } else {
        job.step();
      }
    }
    EXPECT_TRUE(equal(job.parameters(), plain.parameters()));
  });
}

TEST(Metrics, GoToAFileAsWholeLines) {
  const std::string path = ::testing::TempDir() + "metrics_" + std::to_string(getpid()) + "_{rank}.jsonl";
  run_all(2, [&](int, const Group& group) {
    Job job(group);
    EXPECT_THAT(message_of<ConfigError>([&] { job.dp.watch().write_metrics("/no/such/folder/metrics"); }),
                HasSubstr("/no/such/folder/metrics"));
    EXPECT_THAT(message_of<ConfigError>(
                    [&] { job.dp.watch().write_metrics("metrics", {.report = Report::each_rank}); }),
                HasSubstr("{rank}"));
    job.dp.watch().write_metrics(path, {.every = 2, .report = Report::each_rank});
    for (int i = 0; i < 4; ++i) job.step();
  });
  for (const std::string rank : {"0", "1"}) {
    std::string name = path;
    name.replace(name.find("{rank}"), 6, rank);
    std::ifstream file(name);
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    std::remove(name.c_str());
    ASSERT_THAT(lines, SizeIs(2));
    EXPECT_EQ(lines[1]["iteration"], 3);
    EXPECT_EQ(lines[1]["rank"].dump(), rank);
    EXPECT_TRUE(lines[1]["gradient_norm"].is_null());
    EXPECT_GT(lines[1]["bytes"], 0);
  }
}

}  // namespace
}  // namespace dear::monitoring_test
