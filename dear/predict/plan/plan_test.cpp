#include "dear/predict/plan/plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/fusion_choice.h"
#include "dear/schedule/policies/testing/random_job.h"
#include "dear/workload/layers/testing/workloads.h"

namespace dear::plan::plan_test {
namespace {

using dear::testing::Random;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kLayers = 64;
constexpr int kRanks = 4;
constexpr std::int64_t kLayerBytes = 4 << 20;

// 64 equal layers of 4 MiB; f and b seconds of forward and backward in all.
Workload even_job(double f, double b) {
  return dear::testing::workload_of({.layers = kLayers,
                                     .elements = kLayerBytes / 4,
                                     .forward_seconds = f / kLayers,
                                     .backward_seconds = b / kLayers});
}

// On which a ring takes r seconds for all bytes, and 6 times alpha for each all-reduce.
Cluster cluster_of(double r, double alpha_seconds = 0) {
  const double bytes = 1.5 * kLayers * kLayerBytes;
  return flat_cluster(
      {.name = "own", .link = {.alpha_seconds = alpha_seconds, .beta_seconds_per_byte = r / bytes}}, kRanks);
}

Options with(std::initializer_list<const char*> names) {
  Options options;
  for (const char* name : names) options.policies.push_back(&find_policy(name));
  return options;
}

const Row& row_of(const Answer& answer, std::string_view policy) {
  return *std::find_if(answer.rows.begin(), answer.rows.end(),
                       [&](const Row& row) { return row.policy->name == policy; });
}

Workload random_job(Random& random) {
  Workload workload = dear::testing::random_workload(random, 10);
  for (Tensor& tensor : workload.tensors) tensor.dtype = DType::f32;
  return workload;
}

Cluster random_cluster(Random& random) {
  return flat_cluster(
      {.name = "random",
       .link = {.alpha_seconds = random.unit() * 3e-4, .beta_seconds_per_byte = random.unit() * 1e-8}},
      2 + static_cast<int>(random.below(7)));
}

// r is nothing beside the backward: all of it hides there already.
TEST(Verdict, SaysWhereDearIsNotNeeded) {
  const Answer answer = plan(even_job(1, 2), cluster_of(0.01));
  EXPECT_THAT(answer.verdict, Contains(HasSubstr("(wfbp) is as fast here")));
  EXPECT_THAT(answer.verdict, Contains(HasSubstr("No schedule of these collectives can be faster")));
  EXPECT_NEAR(answer.floor_seconds, 3, 1e-9);
  EXPECT_TRUE(answer.rows[answer.best].policy->trains);
}

// f = 0.5, b = 4, r = 2. wfbp hides everything: 4.5. DeAR has half of r left for a forward that is
// shorter: 5.
TEST(Verdict, SaysWhereDearIsNotTheAnswer) {
  const Answer answer = plan(even_job(0.5, 4), cluster_of(2), with({"wfbp", "dear"}));
  EXPECT_THAT(answer.verdict, Contains(HasSubstr("DeAR is not the answer here")));
  EXPECT_THAT(answer.verdict, Contains(HasSubstr("Use wfbp")));
  EXPECT_EQ(answer.rows[answer.best].policy->name, "wfbp");
  EXPECT_NEAR(row_of(answer, "wfbp").evaluation.iteration.seconds, 4.5, 0.1);
  EXPECT_NEAR(row_of(answer, "dear").evaluation.iteration.seconds, 5, 0.1);
}

// f = 1, b = 2, r = 2b: wfbp 1 + 4, DeAR 2 + 2, but for the part of a bucket.
TEST(Verdict, SaysWhatDearGains) {
  const Answer answer = plan(even_job(1, 2), cluster_of(4), with({"serial", "wfbp", "dear"}));
  EXPECT_THAT(answer.verdict, Contains(HasSubstr("Use dear")));
  EXPECT_THAT(
      answer.verdict,
      Contains(HasSubstr("dear gains 24 % over wait-free backpropagation (wfbp) here, by its schedule")));
  EXPECT_THAT(answer.verdict, Not(Contains(HasSubstr("No schedule"))));
  EXPECT_EQ(answer.rows[answer.best].policy->name, "dear");
  EXPECT_NEAR(answer.floor_seconds, 4, 1e-9);
}

// 6 x 0.2 s for each all-reduce and half a second for the bytes; or the bytes alone.
// 256 MiB of parameters, as much of gradients and of momentum: `dear` keeps 576 MiB, `fsdp` a quarter of all
// and what is whole at once. r = b, so sharding everything costs time.
TEST(Verdict, MindsTheMemoryOfARank) {
  Options options = with({"dear", "fsdp"});
  const auto best_in = [&](std::int64_t mebibytes) {
    options.memory_bytes = mebibytes << 20;
    Answer answer = plan(even_job(1, 2), cluster_of(2), options);
    EXPECT_EQ(answer.rows.front().policy->name, "dear");
    return std::pair(std::string(answer.rows[answer.best].policy->name), answer.verdict);
  };
  EXPECT_EQ(best_in(0).first, "dear");
  EXPECT_EQ(best_in(576).first, "dear");
  const auto [smaller, sentences] = best_in(575);
  EXPECT_EQ(smaller, "fsdp");
  EXPECT_THAT(sentences, Contains(HasSubstr("fit into the 575 MiB")));
  const auto [least, advice] = best_in(100);
  EXPECT_EQ(least, "fsdp");
  EXPECT_THAT(advice, Contains(HasSubstr("Nothing fits into the 100 MiB")));
  EXPECT_THAT(advice, Contains(HasSubstr("more ranks to shard over")));
  EXPECT_THAT(advice, Not(Contains(HasSubstr("Use "))));
}

// 768 MiB of state and 1024 MiB of activations; checkpointed in segments of 8 layers, 240 MiB.
TEST(Verdict, SaysWhatWouldMakeItFit) {
  Workload job = even_job(1, 2);
  for (Layer& layer : job.layers) layer.activation_bytes = 16 << 20;
  Options options = with({"wfbp"});
  options.memory_bytes = std::int64_t{1000} << 20;
  const Answer answer = plan(job, cluster_of(2), options);
  EXPECT_FALSE(answer.rows[answer.best].fits);
  EXPECT_THAT(answer.verdict, Contains(HasSubstr("fewer samples a rank")));
  EXPECT_THAT(answer.verdict, Not(Contains(HasSubstr("activation checkpointing"))));
  EXPECT_THAT(answer.sensitivities, IsEmpty());  // of what does not fit
  options.memory_bytes = std::int64_t{1010} << 20;
  EXPECT_THAT(plan(job, cluster_of(2), options).verdict, Contains(HasSubstr("activation checkpointing")));
  EXPECT_THAT(answer.verdict, Not(Contains(HasSubstr("with policy"))));  // none shards that much
  options.memory_bytes = std::int64_t{1400} << 20;
  EXPECT_THAT(plan(job, cluster_of(2), options).verdict,
              Contains(HasSubstr("It would fit with policy fsdp")));
}

// Of fsdp two whole buckets of parameters and one of gradients come on top: all in one needs more than small
// ones.
TEST(Verdict, PrefersBucketsThatFit) {
  Options options = with({"fsdp"});
  options.memory_bytes = std::int64_t{300} << 20;
  const Cluster slow_to_start = cluster_of(0.1, 0.1);
  const Answer known = plan(even_job(1, 2), slow_to_start, options);
  EXPECT_TRUE(known.rows.front().fits);
  options.memory_bytes = 0;
  EXPECT_GT(plan(even_job(1, 2), slow_to_start, options).rows.front().evaluation.memory.total(),
            std::int64_t{300} << 20);
}

TEST(Plan, PassesOverAGroupingThatCannotBe) {
  Policy policy = find_policy("wfbp");
  policy.usual_grouping = [](const Workload&, const cost::CollectiveTimes&) -> Grouping {
    throw ConfigError("no such grouping");
  };
  Options options;
  options.policies = {&policy};
  EXPECT_NE(plan(even_job(1, 2), cluster_of(1), options).rows.at(0).fusion, "usual");
}

TEST(Plan, LeavesOutAPolicyThatCannotBeHad) {
  Options options;
  Policy never = find_policy("fsdp");
  never.make = [](const Workload&, const Grouping&, const cost::CollectiveTimes&) -> Schedule {
    throw ConfigError("it cannot be had");
  };
  options.policies = {&find_policy("dear"), &never};
  const Answer answer = plan(even_job(1, 2), cluster_of(1), options);
  ASSERT_EQ(answer.rows.size(), 1U);
  ASSERT_EQ(answer.left_out.size(), 1U);
  EXPECT_EQ(answer.left_out[0].policy, &never);
  EXPECT_EQ(answer.left_out[0].reason, "it cannot be had");
  EXPECT_THAT(answer.verdict, Contains(HasSubstr("Use dear")));
  options.policies = {&never};
  EXPECT_THROW(plan(even_job(1, 2), cluster_of(1), options), ConfigError);
}

TEST(Plan, LeavesOutWhatIsTooLongToSearch) {
  Options options = with({"wfbp"});
  options.evaluate.most_steps = 160;  // 64 layers forward and backward, and few buckets
  const Answer answer = plan(even_job(1, 2), cluster_of(1), options);
  EXPECT_LT(answer.rows.at(0).grouping.size(), 64U);
  options.evaluate.most_steps = 100;
  EXPECT_THROW(plan(even_job(1, 2), cluster_of(1), options), sim::TooManySteps);
}

// Half a percent is nobody's gain: of the rest the one that needs least memory, then the simplest.
TEST(Verdict, TakesWhatRunsThenWhatNeedsLessThenWhatIsSimpler) {
  const auto best_of = [](std::initializer_list<const char*> names) {
    const Answer answer = plan(even_job(1, 2), cluster_of(0.01), with(names));
    return std::string(answer.rows[answer.best].policy->name);
  };
  EXPECT_EQ(best_of({"ddp", "wfbp"}), "wfbp");
  EXPECT_EQ(best_of({"fsdp", "wfbp"}), "wfbp");  // which needs more, but runs
  EXPECT_EQ(best_of({"wfbp", "dear"}), "dear");
  EXPECT_EQ(best_of({"dear-eager", "dear"}), "dear");
  EXPECT_EQ(best_of({"dear-replicated", "wfbp"}), "wfbp");
}

TEST(Verdict, MarksWhatCanOnlyBeSimulated) {
  const Answer only = plan(even_job(1, 2), cluster_of(4), with({"ddp", "horovod"}));
  EXPECT_THAT(only.verdict, Contains(HasSubstr("which can only be simulated here")));
  EXPECT_THAT(only.verdict, Not(Contains(HasSubstr("Use "))));
  // r = 2 f: bytescheduler, which overlaps everything, is faster than serial.
  const Answer passed = plan(even_job(1, 2), cluster_of(2), with({"bytescheduler", "serial"}));
  EXPECT_THAT(passed.verdict, Contains(HasSubstr("Use serial")));
  EXPECT_THAT(passed.verdict, Contains(HasSubstr("but can only be simulated here: bytescheduler")));
}

TEST(Verdict, NeverSpeaksAgainstWhatItRecommends) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Options options;
    if (seed % 2 == 0) options.memory_bytes = 1 + static_cast<std::int64_t>(random.unit() * 40'000);
    const Answer answer = plan(random_job(random), random_cluster(random), options);
    const Row& best = answer.rows[answer.best];
    const bool of_dear = best.policy->name.starts_with("dear");
    const bool recommends = best.fits && best.runs();
    if (of_dear && recommends) {
      EXPECT_THAT(answer.verdict, Not(Contains(HasSubstr("DeAR is not"))));
    }
    if (!recommends) {
      EXPECT_THAT(answer.verdict, Not(Contains(HasSubstr("Use "))));
    }
    if (answer.rows[0].seconds() < best.seconds() * (1 - kSame)) {
      EXPECT_THAT(answer.verdict, Not(Contains(HasSubstr("No schedule"))));
    }
  }
}

TEST(Verdict, DoesNotPromiseSamplesBeyondMemory) {
  Workload job = even_job(1, 2);
  for (Layer& layer : job.layers) layer.activation_bytes = 1 << 20;
  Options options = with({"wfbp"});
  options.memory_bytes = std::int64_t{850} << 20;  // 768 MiB of state and 64 MiB of activations
  const Answer answer = plan(job, cluster_of(2), options);
  EXPECT_TRUE(answer.rows[0].fits);
  ASSERT_EQ(answer.sensitivities.size(), 4U);
  EXPECT_FALSE(answer.sensitivities[2].fits);
  EXPECT_TRUE(answer.sensitivities[3].fits);
}

// A whole update of 1 on 4 ranks; sharded it takes a quarter. Under no network at all that is all there is to
// gain.
TEST(Gains, AreOfShardingWhereTheUpdateIs) {
  Workload job = even_job(1, 2);
  job.update_seconds = 1;
  const Answer answer = plan(job, cluster_of(1e-6), with({"wfbp", "dear"}));
  ASSERT_TRUE(answer.gain);
  EXPECT_NEAR(answer.gain->seconds, 0.75, 0.01);
  EXPECT_NEAR(answer.gain->sharding, 0.75, 0.01);
  EXPECT_NEAR(answer.gain->schedule, 0, 0.01);
  EXPECT_THAT(answer.verdict, Contains(HasSubstr("by sharding the update")));
}

TEST(Gains, AreOfTheScheduleWhereMoreIsHidden) {
  const Answer answer = plan(even_job(1, 2), cluster_of(4), with({"wfbp", "dear"}));
  ASSERT_TRUE(answer.gain);
  EXPECT_GT(answer.gain->schedule, 0.9 * answer.gain->seconds);
  EXPECT_EQ(answer.gain->over, "wfbp");
}

// By NCCL's choice a reduce-scatter of 64 ranks has the 63 start-ups of a ring, and an all-reduce the 12 of a
// tree: that, and not its schedule, makes DeAR slower.
TEST(Gains, AreOfCollectivesWhereTheseDiffer) {
  const Cluster wide = flat_cluster({.name = "wide", .link = {.alpha_seconds = 1e-3}}, 64);
  const Workload job = even_job(0.01, 0.02);
  Options options = with({"wfbp", "dear"});
  options.times.algorithm = "nccl";
  const Answer answer = plan(job, wide, options);
  EXPECT_EQ(answer.rows[answer.best].policy->name, "wfbp");
  EXPECT_THAT(answer.verdict,
              Contains(AllOf(HasSubstr("DeAR is not the answer"), HasSubstr("take longer than"))));
  // The reason stays where what is simpler is as fast as wfbp.
  options.policies.push_back(&find_policy("serial"));
  const Answer with_serial = plan(even_job(1e-6, 1e-6), wide, options);
  EXPECT_EQ(with_serial.rows[with_serial.best].policy->name, "serial");
  EXPECT_THAT(with_serial.verdict,
              Contains(AllOf(HasSubstr("longer than serial"), HasSubstr("take longer than"))));
  const Row& dear = row_of(answer, "dear");
  const Row& wfbp = row_of(answer, "wfbp");
  const Gain gain =
      gain_over({*dear.policy, dear.grouping}, {*wfbp.policy, wfbp.grouping}, job, wide, options.times, {});
  EXPECT_LT(gain.seconds, 0);
  EXPECT_EQ(gain.parts()[0].cause, Gain::Cause::collectives);
  EXPECT_NEAR(gain.schedule + gain.sharding + gain.collectives + gain.fusion, gain.seconds, 1e-12);
}

TEST(Plan, SaysWhereItIs) {
  std::vector<std::string> said;
  Options options = with({"wfbp", "dear"});
  options.progress = [&](std::size_t done, std::size_t all, std::string_view next) {
    said.push_back(std::to_string(done) + "/" + std::to_string(all) + " " + std::string(next));
  };
  (void)plan(even_job(1, 2), cluster_of(1), options);
  EXPECT_EQ(said, (std::vector<std::string>{"0/2 wfbp", "1/2 dear"}));
}

TEST(Plan, StartUpAsksForFewerBuckets) {
  for (const char* const policy : {"wfbp", "dear"}) {
    const Answer start_up = plan(even_job(1, 2), cluster_of(0.5, 0.2), with({policy}));
    const Answer bytes = plan(even_job(1, 2), cluster_of(4), with({policy}));
    EXPECT_LT(2 * start_up.rows[0].grouping.size(), bytes.rows[0].grouping.size()) << policy;
    EXPECT_GT(start_up.rows[0].breakdown.start_up, 0);
    EXPECT_NEAR(bytes.rows[0].breakdown.start_up, 0, 1e-9);
  }
  const Answer serial = plan(even_job(1, 2), cluster_of(0.5, 0.2), with({"serial"}));
  EXPECT_EQ(serial.rows[0].grouping.size(), 1U);
  EXPECT_THAT(serial.rows[0].why, HasSubstr("start-up of messages"));
}

TEST(Plan, CountsLaunchesAsStartUp) {
  Cluster cluster = cluster_of(4);
  const Row before = plan(even_job(1, 2), cluster, with({"wfbp"})).rows[0];
  cluster.software.launch_seconds = 0.2;
  const Row after = plan(even_job(1, 2), cluster, with({"wfbp"})).rows[0];
  EXPECT_NEAR(before.breakdown.start_up, 0, 1e-9);
  EXPECT_GT(after.breakdown.start_up, 0.1);
  EXPECT_LE(after.grouping.size(), before.grouping.size());
}

TEST(Plan, SaysWhatInterferenceTakes) {
  Cluster cluster = cluster_of(1);
  EXPECT_EQ(plan(even_job(1, 2), cluster, with({"wfbp"})).rows[0].breakdown.interference, 0);
  cluster.interference = {.communication = 1.05, .computation = 1.9};
  const Answer answer = plan(even_job(1, 2), cluster, with({"wfbp"}));
  EXPECT_GT(answer.rows[0].breakdown.interference, 0.2);
  EXPECT_THAT(answer.rows[0].why, HasSubstr("interference"));
}

TEST(Plan, IsSortedAndCompleteAndAddsUp) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Workload workload = random_job(random);
    Cluster cluster = random_cluster(random);
    if (seed % 3 == 0) cluster.interference = {.communication = 1 + random.unit(), .computation = 1.2};
    const Answer answer = plan(workload, cluster);
    ASSERT_EQ(answer.rows.size(), policies().size());
    EXPECT_TRUE(std::is_sorted(answer.rows.begin(), answer.rows.end(), [](const Row& a, const Row& b) {
      return a.evaluation.iteration.seconds < b.evaluation.iteration.seconds;
    }));
    std::set<std::string_view> names;
    for (const Row& row : answer.rows) {
      SCOPED_TRACE(row.policy->name);
      names.insert(row.policy->name);
      const double seconds = row.evaluation.iteration.seconds;
      const Breakdown& parts = row.breakdown;
      EXPECT_NEAR(parts.compute + parts.overlap + parts.fusion + parts.start_up + parts.interference, seconds,
                  1e-9 * seconds);
      EXPECT_GE(parts.compute, 0);
      EXPECT_GE(parts.overlap, 0);
      EXPECT_FALSE(row.why.empty());
      EXPECT_FALSE(row.algorithm.empty());
      // The row is what that grouping gives.
      const cost::CollectiveTimes times = cost::times_on(cluster);
      EXPECT_EQ(sim::evaluate(*row.policy, workload, row.grouping, cluster, times).iteration.seconds,
                seconds);
    }
    EXPECT_EQ(names.size(), policies().size());
    EXPECT_TRUE(answer.rows[answer.best].runs());
    for (const Row& row : answer.rows) {
      if (row.runs()) {
        EXPECT_LE(answer.rows[answer.best].seconds(), row.seconds() * (1 + kSame));
      }
    }
  }
}

// No other of its sizes is better, and its own system's settings are not either.
TEST(Plan, FindsTheBestGrouping) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    Random random(seed);
    const Workload workload = random_job(random);
    const Cluster cluster = random_cluster(random);
    const cost::CollectiveTimes times = cost::times_on(cluster);
    for (const Row& row : plan(workload, cluster).rows) {
      for (const char* const text : {"usual", "planned", "1MiB", "4MiB", "layer", "all"}) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << row.policy->name << ", " << text);
        const Grouping other = FusionChoice::of_simulation(text).resolve(*row.policy, workload, times);
        EXPECT_LE(row.evaluation.iteration.seconds * (1 - 1e-6),
                  sim::evaluate(*row.policy, workload, other, cluster, times).iteration.seconds);
      }
    }
  }
}

TEST(Sensitivities, MoveTheRightWay) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Answer answer = plan(random_job(random), random_cluster(random), with({"serial", "wfbp", "dear"}));
    const double now = answer.rows[answer.best].evaluation.iteration.seconds;
    ASSERT_GE(answer.sensitivities.size(), 4U);
    const Sensitivity& bandwidth = answer.sensitivities[0];
    const Sensitivity& latency = answer.sensitivities[1];
    const Sensitivity& samples = answer.sensitivities[2];
    const Sensitivity& devices = answer.sensitivities[3];
    EXPECT_EQ(bandwidth.change, "twice the bandwidth");
    EXPECT_EQ(latency.change, "half the latency");
    EXPECT_EQ(samples.change, "twice the samples a rank");
    EXPECT_EQ(devices.change, "devices twice as fast");
    for (const Sensitivity& faster : {bandwidth, latency, devices}) {
      EXPECT_LE(faster.iteration_seconds, now * (1 + 1e-9)) << faster.change;
      EXPECT_GE(faster.iteration_seconds, now / 2 * (1 - 1e-9)) << faster.change;
      EXPECT_NEAR(faster.speed_up, now / faster.iteration_seconds, 1e-9) << faster.change;
    }
    EXPECT_GE(samples.iteration_seconds, now * (1 - 1e-9));
    EXPECT_LE(samples.iteration_seconds, 2 * now * (1 + 1e-9));
    EXPECT_NEAR(samples.speed_up, 2 * now / samples.iteration_seconds, 1e-9);
  }
}

// serial, f = 1, b = 2, a ring of r = 3 + 6 x 0.5 in one bucket: 9.
// Four ranks, one of which takes twice as long: passes of 2 a layer take 4, and 2 * 4 / 3.5 in balance.
TEST(Sensitivities, OfBatchesThatAreSharedBySpeed) {
  Options options = with({"serial"});
  Cluster cluster = cluster_of(1e-9);
  const double even = plan(even_job(1, 2), cluster, options).rows[0].evaluation.iteration.seconds;
  EXPECT_THAT(plan(even_job(1, 2), cluster, options).sensitivities, SizeIs(4));
  cluster.stragglers = {{.rank = 2, .slowdown = 2}};
  const Answer answer = plan(even_job(1, 2), cluster, options);
  ASSERT_THAT(answer.sensitivities, SizeIs(5));
  const Sensitivity& shared = answer.sensitivities[4];
  EXPECT_EQ(shared.change, "batches shared by speed");
  EXPECT_NEAR(shared.iteration_seconds, even * 4 / 3.5, 1e-6 * even);
  EXPECT_NEAR(shared.speed_up, 3.5 / 2, 1e-6);
}

TEST(Sensitivities, ByPencil) {
  Options options = with({"serial"});
  options.times.algorithm = "ring";
  const Answer answer = plan(even_job(1, 2), cluster_of(3, 0.5), options);
  const Row& row = answer.rows[0];
  EXPECT_EQ(row.grouping.size(), 1U);
  EXPECT_EQ(row.algorithm, "ring");
  EXPECT_NEAR(row.evaluation.iteration.seconds, 9, 1e-9);
  EXPECT_NEAR(row.breakdown.compute, 3, 1e-9);
  EXPECT_NEAR(row.breakdown.overlap, 3, 1e-9);
  EXPECT_NEAR(row.breakdown.fusion, 0, 1e-9);
  EXPECT_NEAR(row.breakdown.start_up, 3, 1e-9);
  EXPECT_NEAR(answer.sensitivities[0].iteration_seconds, 7.5, 1e-9);  // bandwidth
  EXPECT_NEAR(answer.sensitivities[1].iteration_seconds, 7.5, 1e-9);  // latency
  EXPECT_NEAR(answer.sensitivities[2].iteration_seconds, 12, 1e-9);   // samples
  EXPECT_NEAR(answer.sensitivities[3].iteration_seconds, 7.5, 1e-9);  // devices
}

// By simulation, where updates take no time: what the recursion of schedule/fusion/planned.h is about.
TEST(Planned, IsNoWorseThanAnyThreshold) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    Workload workload = random_job(random);
    workload.update_seconds = 0;
    const Cluster cluster = random_cluster(random);
    const cost::CollectiveTimes times = cost::times_on(cluster);
    for (const char* const name : {"wfbp", "dear"}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << name);
      const Policy& policy = find_policy(name);
      const auto seconds = [&](const Grouping& grouping) {
        return sim::evaluate(policy, workload, grouping, cluster, times, {.iterations = 32})
            .iteration.seconds;
      };
      const double planned = seconds(FusionChoice::of_simulation("planned").resolve(policy, workload, times));
      std::set<std::int64_t> thresholds = {1, workload.bytes() + 1};
      for (int i = 0; i < 20; ++i)
        thresholds.insert(1 +
                          static_cast<std::int64_t>(random.unit() * static_cast<double>(workload.bytes())));
      for (const std::int64_t threshold : thresholds)
        EXPECT_LE(planned, seconds(group(workload, BySize{.threshold_bytes = threshold})) * (1 + 1e-6))
            << threshold;
    }
  }
}

TEST(FusionChoice, TakesWhatIsWritten) {
  const Workload workload = even_job(1, 2);
  const cost::CollectiveTimes times = cost::times_on(cluster_of(4));
  const auto buckets = [&](const char* text, const char* policy = "wfbp") {
    const FusionChoice choice = FusionChoice::of_simulation(text);
    EXPECT_EQ(choice.text(), text);
    return choice.resolve(find_policy(policy), workload, times).size();
  };
  EXPECT_EQ(buckets("layer"), 64U);
  EXPECT_EQ(buckets("all"), 1U);
  EXPECT_EQ(buckets("9MiB"), 32U);
  EXPECT_EQ(buckets("usual"), find_policy("wfbp").usual_grouping(workload, times).size());
  EXPECT_EQ(buckets("usual", "ddp"), find_policy("ddp").usual_grouping(workload, times).size());
  EXPECT_NE(buckets("usual", "ddp"), buckets("usual"));
  EXPECT_GT(buckets("planned"), 1U);

  try {
    (void)FusionChoice::of_simulation("often");
    FAIL() << "there is no such grouping";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("or usual, or planned"));
  }
}

TEST(Scaled, MultipliesEveryLink) {
  Cluster cluster = cluster_of(1, 2);
  cluster.dimensions.push_back(
      {.name = "outer", .size = 2, .link = {.alpha_seconds = 5, .beta_seconds_per_byte = 3}});
  const Cluster half = scaled(cluster, 0.5, 0.25);
  EXPECT_EQ(half.dimensions[0].link.alpha_seconds, 1);
  EXPECT_EQ(half.dimensions[1].link, (Link{.alpha_seconds = 2.5, .beta_seconds_per_byte = 0.75}));
  EXPECT_EQ(scaled(cluster, 1, 1), cluster);
}

TEST(Plan, SaysWhatDdpWaitsForItsBuffers) {
  Workload workload = even_job(1, 2);
  workload.buffer_bytes = 8;
  workload.buffers = 2;
  Cluster cluster = cluster_of(1);
  cluster.software.buffer_seconds = 0.25;
  const auto planned = [&] { return plan(workload, cluster, with({"ddp", "wfbp"})); };
  const Answer answer = planned();
  EXPECT_THAT(answer.verdict,
              Contains(AllOf(HasSubstr("ddp waits 500 ms of its "), HasSubstr("for the 2 buffers"),
                             HasSubstr("broadcast_buffers=False"))));
  EXPECT_THAT(row_of(answer, "ddp").why, HasSubstr("buffers, which it broadcasts"));
  EXPECT_NEAR(row_of(answer, "ddp").breakdown.start_up, 0.5, 1e-9);
  EXPECT_NEAR(row_of(answer, "wfbp").breakdown.start_up, 0, 1e-9);
  cluster.software.buffer_seconds = 0;
  EXPECT_THAT(planned().verdict, Not(Contains(HasSubstr("buffers"))));
}

TEST(Plan, RefusesWhatCannotBe) {
  EXPECT_THROW(plan(even_job(1, 2), Cluster{.name = "none", .dimensions = {}}), ConfigError);
  EXPECT_THROW(plan(Workload{}, cluster_of(1)), ConfigError);
}

}  // namespace
}  // namespace dear::plan::plan_test
