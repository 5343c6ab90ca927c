// Several models that train in turns, on one group.

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/predict/tune/size_candidates.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/net.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/tuning/live_tuning.h"
#include "dear/train/tuning/tuned.h"

namespace dear::tuning::turns_test {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::Ge;
using train::testing::groups_of;
using train::testing::kFeatures;
using train::testing::make_net;
using train::testing::rows;
using train::testing::run_all;

struct Job {
  struct Turn {
    double begin_seconds, end_seconds;
  };
  Job(const Group& group, DataParallelOptions options)
      : rank(group.rank()),
        net(make_net()),
        adamw(net->parameters(), 1e-3),
        parallel(*net, adamw, group, std::move(options)) {}
  void turn(int steps) {
    const double begin = now_seconds();
    for (int i = 0; i < steps; ++i) {
      const auto batch = rows(taken++, 2 * rank, 2, kFeatures);
      torch::mse_loss(net->forward(batch.inputs), batch.targets).backward();
      parallel.step();
    }
    parallel.synchronize();
    turns.push_back({begin, now_seconds()});
  }
  int rank;
  torch::nn::Sequential net;
  torch::optim::AdamW adamw;
  DataParallel parallel;
  std::vector<Turn> turns;
  int taken = 0;
};

DataParallelOptions tuned_under(const std::string& policy) {
  return {.policy = policy,
          .buckets = tuned({.start = Fusion::parse("all"), .method = "grid", .budget_iterations = 1e9}),
          .profile_steps = 2};
}

TEST(Turns, ChangeNoBitWhateverIsTunedOrOrderedMeanwhile) {
  const std::vector<std::string> policies = {"serial", "wfbp", "dear", "dear-eager"};
  std::string alone;
  run_all(2, [&](int rank, Group group) {
    Job job(group, {.policy = "serial", .buckets = given(Fusion::parse("all"))});
    job.turn(60);
    if (rank == 0) alone = parameter_digest(*job.net);
  });
  run_all(2, [&](int rank, Group group) {
    std::vector<std::unique_ptr<Job>> jobs;
    for (const std::string& policy : policies)
      jobs.push_back(std::make_unique<Job>(group, tuned_under(policy)));
    for (int round = 0; round < 20; ++round) {
      for (std::size_t i = 0; i < jobs.size(); ++i) jobs[(i + static_cast<std::size_t>(round)) % 4]->turn(3);
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(parameter_digest(*jobs[i]->net), alone) << policies[i];
      if (rank != 0) continue;
      std::set<std::size_t> tried;
      for (const tune::Trial& trial : jobs[i]->parallel.tuning()->trials) tried.insert(trial.candidate);
      EXPECT_GE(tried.size(), 3U) << policies[i];
    }
  });
}

TEST(Turns, SpansOfLayersLieWithinThem) {
  run_all(2, [&](int, Group group) {
    Job first(group, {.policy = "dear", .buckets = given(Fusion::parse("layer")), .record_trace = true});
    Job second(group, {.policy = "wfbp", .buckets = given(Fusion::parse("layer")), .record_trace = true});
    for (int round = 0; round < 4; ++round) {
      first.turn(2);
      second.turn(2);
    }
    for (Job* job : {&first, &second}) {
      int layers = 0;
      for (const Span& span : job->parallel.trace().spans) {
        if (span.activity != Activity::forward && span.activity != Activity::backward) continue;
        ++layers;
        int within = 0;
        for (const Job::Turn& turn : job->turns)
          within += span.begin_seconds >= turn.begin_seconds && span.end_seconds <= turn.end_seconds;
        EXPECT_EQ(within, 1) << span.name << " of iteration " << span.iteration;
      }
      EXPECT_EQ(layers, 2 * 6 * 7);  // forward and backward of 6 layers, in all iterations but the first
    }
  });
}

// A tuned job of one rank, which a test tells how long its iterations take.
struct Told {
  Told() {
    for (int i = 0; i < 8; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      workload.tensors.push_back({name, 100'000, DType::f32});
      workload.layers.push_back({.name = name,
                                 .tensors = {static_cast<TensorId>(i)},
                                 .forward_seconds = 0.01,
                                 .backward_seconds = 0.02});
    }
    static_cast<void>(tuning.start(workload));
  }
  void iteration(double seconds) {
    now += seconds;
    const auto wanted = tuning.iteration_ended(now);
    if (wanted.buckets) tuning.changed(now, now);
    if (++told == 4) static_cast<void>(tuning.begin(workload, {1e-5, 1e-9}, group_backward_all()));
  }
  [[nodiscard]] Grouping group_backward_all() const { return group(workload, AllInOne{}); }

  Workload workload{.name = "told"};
  Group ranks = groups_of(1).front();
  LiveTuning tuning{{.group = ranks, .policy = "dear", .one_copy = false},
                    {.method = "grid", .budget_iterations = 1e9}};
  double now = 0;
  int told = 0;
};

TEST(Turns, TuningDoesNotMeasureThePauses) {
  Told job;
  for (int turn = 0; turn < 60; ++turn) {
    for (int i = 0; i < 2; ++i) job.iteration(1);
    job.tuning.synchronized();
    job.now += 1;
  }
  EXPECT_GE(job.tuning.progress()->trials.size(), 3U);
  EXPECT_THAT(job.tuning.progress()->trials, Each(Field(&tune::Trial::seconds, 1)));
}

TEST(Turns, AProgramThatSynchronisesInEachIterationIsMeasuredWhole) {
  Told job;
  for (int i = 0; i < 80; ++i) {
    job.iteration(2);
    job.tuning.synchronized();
    job.now += 1;
  }
  EXPECT_GE(job.tuning.progress()->trials.size(), 3U);
  EXPECT_THAT(job.tuning.progress()->trials, Each(Field(&tune::Trial::seconds, 3)));
}

}  // namespace
}  // namespace dear::tuning::turns_test
