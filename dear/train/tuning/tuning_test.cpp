// Buckets that are tuned while training.

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/predict/tune/cache.h"
#include "dear/schedule/conductor/testing/order_check.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/bucket_changes.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/net.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/engine/engine.h"
#include "dear/train/engine/model_schedule.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/tuning/tuned.h"
#include "dear/train/tuning/tuning_progress.h"

namespace dear::tuning::tuning_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using train::testing::groups_of;
using train::testing::kFeatures;
using train::testing::make_net;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

struct Job {
  explicit Job(const Group& group, DataParallelOptions options = {})
      : rank(group.rank()),
        net(make_net()),
        adamw(net->parameters(), 1e-3),
        parallel(*net, adamw, group, std::move(options)) {}
  void step() {
    const auto batch = rows(taken++, 2 * rank, 2, kFeatures);
    torch::mse_loss(net->forward(batch.inputs), batch.targets).backward();
    parallel.step();
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  int rank;
  torch::nn::Sequential net;
  torch::optim::AdamW adamw;
  DataParallel parallel;
  int taken = 0;
};

// Tries every candidate, however long it takes.
TuningOptions every_candidate() {
  return {.start = Fusion::parse("all"), .method = "grid", .budget_iterations = 1e9};
}
DataParallelOptions everything(const std::string& policy = "dear") {
  return {.policy = policy, .buckets = tuned(every_candidate()), .profile_steps = 2};
}

std::string digest_of(const std::string& policy, int ranks, const DataParallelOptions& options, int steps) {
  std::string digest;
  run_all(ranks, [&](int rank, Group group) {
    DataParallelOptions mine = options;
    mine.policy = policy;
    Job job(group, std::move(mine));
    job.steps(steps);
    job.parallel.synchronize();
    if (rank != 0) return;
    digest = parameter_digest(*job.net);
    if (!options.buckets.make || ranks == 1) return;
    const TuningProgress& tuning = *job.parallel.tuning();
    std::set<std::size_t> tried;
    for (const tune::Trial& trial : tuning.trials) tried.insert(trial.candidate);
    EXPECT_GE(tried.size(), 3U) << policy;
    EXPECT_EQ(job.parallel.grouping().size(), tuning.sizes.groupings[tuning.running].size());
    EXPECT_GT(tuning.paid_seconds, 0);
  });
  return digest;
}

TEST(Tuned, ChangesNoBit) {
  constexpr int kSteps = 60;
  for (const int ranks : {1, 2, 3}) {
    const std::string expected = digest_of("serial", ranks, {.buckets = given(Fusion::parse("all"))}, kSteps);
    for (const Policy& policy : training_policies()) {
      const std::string name(policy.name);
      EXPECT_EQ(digest_of(name, ranks, everything(), kSteps), expected) << ranks << " ranks, " << name;
    }
  }
}

TEST(Tuned, IsWhatHappensUnlessBucketsAreGiven) {
  run_all(2, [](int rank, Group group) {
    Job job(group);
    job.steps(12);
    ASSERT_NE(job.parallel.tuning(), nullptr);
    EXPECT_EQ(job.parallel.tuning()->predicted.empty(), rank != 0);
    EXPECT_GT(job.parallel.tuning()->sizes.candidates.size(), 3U);
    EXPECT_EQ(Job(group, {.buckets = given(Fusion::parse("all"))}).parallel.tuning(), nullptr);
    EXPECT_EQ(Job(group, {.buckets = planned()}).parallel.tuning(), nullptr);
  });
  run_all(1, [](int, Group group) { EXPECT_EQ(Job(group).parallel.tuning(), nullptr); });
}

TEST(Tuned, SaysWhatWasTried) {
  run_all(2, [](int rank, Group group) {
    Job job(group,
            {.buckets = tuned({.start = Fusion::parse("all")}), .profile_steps = 4, .record_trace = true});
    job.step();
    EXPECT_EQ(job.parallel.grouping().size(), 1U);
    job.steps(399);
    const TuningProgress& tuning = *job.parallel.tuning();
    EXPECT_EQ(job.parallel.statistics().iterations, 400);
    EXPECT_EQ(job.parallel.grouping().size(), tuning.sizes.groupings[tuning.running].size());
    if (rank == 0) {
      ASSERT_GE(tuning.trials.size(), 2U);
      EXPECT_EQ(tuning.trials[0].at_iteration, 2);
      EXPECT_EQ(tuning.trials[0].state, tune::State::baseline);
      EXPECT_EQ(tuning.expectations.size(), tuning.sizes.candidates.size());
    }
    const Trace trace = job.parallel.trace();
    EXPECT_THAT(trace.spans,
                Contains(AllOf(Field(&Span::name, StartsWith("tune: fusion ")), Field(&Span::rank, rank))));
    EXPECT_THAT(trace.spans, Contains(Field(&Span::name, "broadcast of decision")));
    EXPECT_THAT(conductor::order_violations(job.parallel.schedule(), trace, {.free = {.compute = true}}),
                IsEmpty());
  });
}

// The step that changes buckets may be the last.
TEST(Tuned, AProfileIsOfAllStepsWhateverTheirBuckets) {
  for (const int steps : {4, 5, 30}) {
    run_all(2, [&](int, Group group) {
      DataParallelOptions options = everything();
      options.record_trace = true;
      Job job(group, options);
      job.steps(steps);
      const Workload profile = job.parallel.profile();
      EXPECT_GT(profile.update_seconds, 0) << steps;
      for (const Layer& layer : profile.layers) {
        EXPECT_GT(layer.forward_seconds, 0) << steps << ", " << layer.name;
        EXPECT_GT(layer.backward_seconds, 0) << steps << ", " << layer.name;
      }
    });
  }
}

// An engine whose buckets are chosen by a clock that a test moves.
struct Clocked {
  Clocked(Group ranks, const DataParallelOptions& options)
      : group(std::move(ranks)),
        net(make_net()),
        adamw(net->parameters(), 1e-3),
        optimizer(make_optimizer(adamw)),
        scanned(train::scan(model_of(*net), *optimizer)),
        changes(group, options, at::kCPU, [this] { return now; }) {
    for (std::size_t i = 0; i < scanned.trained.size(); ++i) {
      order.push_back(i);
      layer_of.push_back(static_cast<LayerId>(i / 2));
    }
    engine = make(changes.first(train::workload_of(scanned.trained, order, layer_of), Fusion()));
  }
  [[nodiscard]] std::unique_ptr<train::Engine> make(const Fusion& fusion) {
    return std::make_unique<train::Engine>(
        group, scanned.trained, order, layer_of, *optimizer,
        train::Engine::Options{.policy = "dear", .fusion = fusion, .decision = changes.decision()});
  }
  void step(double seconds) {
    engine->conductor().synchronize();  // options are read until then
    engine->updates().capture_options();
    for (std::size_t i = 0; i < order.size(); ++i) engine->model().mark_unused(i);
    engine->conductor().commit();
    now += seconds;
    const auto change = changes.step_ended(*engine, ++steps, [this] {
      Workload workload = engine->workload();
      for (Layer& layer : workload.layers) layer.forward_seconds = layer.backward_seconds = 1e-4;
      return workload;
    });
    if (!change) return;
    const auto state = engine->updates().state();
    auto next = make(*change->fusion);
    next->updates().take_over(state);
    engine = std::move(next);
    changes.changed(*change);
  }

  Group group;
  torch::nn::Sequential net;
  torch::optim::AdamW adamw;
  std::unique_ptr<Optimizer> optimizer;
  train::ModelScan scanned;
  std::vector<std::size_t> order;
  std::vector<LayerId> layer_of;
  double now = 0;
  train::BucketChanges changes;
  std::unique_ptr<train::Engine> engine;
  std::int64_t steps = 0;
};

// From some step on every iteration takes longer on all ranks, though the network does not: all ranks measure
// it again, together.
TEST(Tuned, ADriftHasTheNetworkMeasuredAgain) {
  run_all(2, [](int rank, Group group) {
    Clocked run(std::move(group),
                {.buckets = tuned({.start = Fusion::parse("all"), .budget_iterations = 1})});
    run.step(4e-3);
    const TuningProgress& tuning = *run.changes.progress();
    // The session knows after so many steps after convergence what is usual. All ranks see the same times, so
    // each takes as many steps.
    for (int steps = 0; steps < 100; steps = tuning.converged ? steps + 1 : 0) run.step(4e-3);
    const std::int64_t earlier = run.steps;
    const std::size_t networks = tuning.networks.size();
    EXPECT_GE(networks, 1U);
    for (int i = 0; i < 400 && tuning.networks.size() == networks; ++i) run.step(40e-3);
    ASSERT_GT(tuning.networks.size(), networks);
    EXPECT_GT(tuning.networks.back().at_iteration, earlier);
    for (const MeasuredNetwork& network : tuning.networks) EXPECT_GT(network.link.beta_seconds_per_byte, 0);
    for (int i = 0; i < 30; ++i) run.step(4e-3);
    EXPECT_EQ(run.engine->grouping().size(), tuning.sizes.groupings[tuning.running].size());
    if (rank != 0) return;
    EXPECT_TRUE(std::any_of(tuning.trials.begin(), tuning.trials.end(), [&](const tune::Trial& trial) {
      return trial.state == tune::State::drifted && trial.at_iteration + trial.iterations > earlier;
    }));
  });
}

TEST(Tuned, RegroupEndsIt) {
  run_all(2, [](int, Group group) {
    Job job(group, everything());
    job.steps(9);
    EXPECT_NE(job.parallel.tuning(), nullptr);
    job.parallel.regroup(Fusion::parse("all"));
    EXPECT_EQ(job.parallel.tuning(), nullptr);
    job.steps(20);
    EXPECT_EQ(job.parallel.grouping().size(), 1U);
    job.parallel.synchronize();
    Job before(group, everything());
    before.parallel.regroup(Fusion::parse("layer"));
    before.steps(20);
    EXPECT_EQ(before.parallel.grouping().size(), 6U);
  });
}

std::string cache_in_a_temporary_folder() {
  return (std::filesystem::temp_directory_path() / ("dear_tuning_test" + std::to_string(::getpid())))
      .string();
}

TEST(Tuned, BeginsWithWhatTheCacheSays) {
  const std::string path = cache_in_a_temporary_folder();
  std::filesystem::remove(path);
  TuningOptions cached = every_candidate();
  cached.cache = path;
  const DataParallelOptions options{.buckets = tuned(cached), .profile_steps = 2};
  run_all(2, [&](int rank, Group group) {
    Job job(group, options);
    job.steps(250);
    if (rank != 0) return;
    EXPECT_EQ(job.parallel.tuning()->cache_error, "");
  });
  // The cache is changed so that "planned" has won, with buckets that no plan would make.
  std::string text = os::read_file(path);
  const std::size_t at = text.find("\"choice\": \"");
  ASSERT_NE(at, std::string::npos) << text;
  const std::size_t end = text.find('"', at + 11);
  text.replace(at + 11, end - at - 11, "planned");
  const std::size_t planned = text.find("\"planned\": [");
  ASSERT_NE(planned, std::string::npos) << text;
  std::string names = "[\"0.weight\", \"0.bias\"], [";
  for (int i = 2; i <= 6; ++i) names += fmt::format("{}\"{}.weight\", \"{}.bias\"", i == 2 ? "" : ", ", i, i);
  text = text.substr(0, planned) + "\"planned\": [" + names + "]]}]}";
  os::write_file_atomically(path, text);
  run_all(2, [&](int, Group group) {
    Job job(group, options);
    job.step();
    EXPECT_EQ(job.parallel.grouping().size(), 2U);
    job.steps(20);
  });
  // Another policy is another job, and so is one whose ranks share a copy.
  DataParallelOptions other_policy = options;
  other_policy.policy = "wfbp";
  DataParallelOptions one_copy = options;
  one_copy.one_copy = true;
  for (const DataParallelOptions& other : {other_policy, one_copy}) {
    run_all(2, [&](int, Group group) {
      Job job(group, other);
      job.step();
      EXPECT_EQ(job.parallel.grouping().size(), 1U);
    });
  }
  std::filesystem::remove(path);
}

TEST(Tuned, ACacheThatCannotBeUsedIsRefusedOnEveryRank) {
  const std::string path = cache_in_a_temporary_folder();
  os::write_file_atomically(path, "no cache\n");
  for (const std::string& file : {path, std::string("/nowhere/at/all")}) {
    const auto errors = run_each(
        groups_of(3), [&](int, Group group) { Job job(group, {.buckets = tuned({.cache = file})}); });
    for (const std::exception_ptr& error : errors) {
      EXPECT_THAT(what_of(error), HasSubstr(file));
      EXPECT_THROW(std::rethrow_exception(error), ConfigError);
    }
  }
  std::filesystem::remove(path);
}

TEST(Tuned, DifferentlyOnRanksIsAMismatch) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    DataParallelOptions options;
    if (rank == 1) options.buckets = tuned({.start = Fusion::parse("all")});
    Job job(group, options);
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_THAT(what_of(error), AllOf(HasSubstr("choice of buckets"), HasSubstr("rank 1")));
    EXPECT_THROW(std::rethrow_exception(error), MismatchError);
  }
  const auto unknown = run_each(
      groups_of(2), [](int, Group group) { Job job(group, {.buckets = tuned({.method = "guessing"})}); });
  for (const std::exception_ptr& error : unknown) EXPECT_THAT(what_of(error), HasSubstr("guessing"));
}

TEST(Tuned, OneCopyOfTheParametersIsTunedAsWell) {
  std::array<std::string, 2> digests;
  for (const bool one_copy : {false, true}) {
    run_all(3, [&](int rank, Group group) {
      Job job(group, {.one_copy = one_copy, .profile_steps = 3});
      job.steps(30);
      EXPECT_NE(job.parallel.tuning(), nullptr);
      const std::string digest = parameter_digest(*job.net);
      if (rank == 0) digests.at(one_copy ? 1 : 0) = digest;
    });
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST(Tuned, ARankThatFailsMeanwhileIsToldToTheOthers) {
  const auto errors = run_each(groups_of(3), [](int rank, Group group) {
    Job job(group, everything());
    for (int i = 0; i < 200; ++i) {
      if (rank == 1 && i == 13) throw Error("rank 1 had enough");
      job.step();
    }
  });
  EXPECT_EQ(what_of(errors[1]), "rank 1 had enough");
  for (const int rank : {0, 2}) EXPECT_THROW(std::rethrow_exception(errors[rank]), TransportError) << rank;
}

}  // namespace
}  // namespace dear::tuning::tuning_test
