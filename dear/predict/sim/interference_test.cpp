#include <array>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/dilated_clock.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/predict/sim/ranks.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/random_job.h"

// Communication and computation slow each other down.
namespace dear::sim::interference_test {
namespace {

using dear::testing::Random;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kRelative = 1e-9;

TEST(DilatedClock, IsSlowForAsLongAsItIsTold) {
  DilatedClock clock;
  EXPECT_EQ(clock.at(0.1), 0.1);
  EXPECT_EQ(clock.when(0.1), 0.1);
  clock.dilate(2, 1);
  EXPECT_DOUBLE_EQ(clock.at(4), 2.5);
  EXPECT_DOUBLE_EQ(clock.when(2.5), 4);
  clock.dilate(2, 3);  // nothing new
  EXPECT_DOUBLE_EQ(clock.at(4), 2.5);
  clock.dilate(1, 4);
  EXPECT_DOUBLE_EQ(clock.at(5), 3.5);
  EXPECT_DOUBLE_EQ(clock.when(3.5), 5);
}

// Two layers, forward 1 + 1 and backward 1 + 2, all-reduces of so many seconds each. Without interference
// the second layer's backward ends at 4, under the first layer's backward, which lasts until 5, its
// all-reduce begins.
struct Pencil {
  Workload workload{
      .name = "two",
      .tensors = {{.name = "a", .elements = 1}, {.name = "b", .elements = 1}},
      .layers = {{.name = "first", .tensors = {0}, .forward_seconds = 1, .backward_seconds = 1},
                 {.name = "second", .tensors = {1}, .forward_seconds = 1, .backward_seconds = 2}}};
  Schedule schedule = make_wfbp(workload, group(workload, PerLayer{}));

  std::vector<double> commits(double all_reduce, const Interference& interference, int ranks = 2) const {
    std::vector<double> seconds(schedule.steps().size(), 0);
    for (StepId step = 0; step < seconds.size(); ++step) {
      const Work& work = schedule.steps()[step].work;
      if (std::holds_alternative<Communicate>(work)) seconds[step] = all_reduce;
      if (const auto* forward = std::get_if<Forward>(&work))
        seconds[step] = workload.layers[forward->layer].forward_seconds;
      if (const auto* backward = std::get_if<Backward>(&work))
        seconds[step] = workload.layers[backward->layer].backward_seconds;
    }
    ClosedFormNetwork network(seconds, ranks);
    const RanksResult result = drive_ranks(
        schedule, 3, ranks, [&](int, Instance which) { return seconds[which.step]; }, network, {},
        interference);
    for (const std::vector<double>& of_rank : result.commit_seconds)
      EXPECT_EQ(of_rank, result.commit_seconds.front());
    return result.commit_seconds.front();
  }
};

// An all-reduce that begins at 4 and the first layer's backward, which is left to do for 1 s.
TEST(Interference, SlowsBothOnlyWhileBothGoOn) {
  const Pencil pencil;
  EXPECT_THAT(pencil.commits(0.5, {}), ElementsAre(5, 10.5, 16));
  // The all-reduce takes 0.75 s beside the backward, which is not slower; the second one, 0.5 s alone.
  EXPECT_THAT(pencil.commits(0.5, {.communication = 1.5}), ElementsAre(5, 10.5, 16));
  // A third of what is left of the backward takes the 0.5 s that the all-reduce does; the rest follows alone.
  const double longer = 5 + 0.5 * (1 - 1 / 1.5);
  const std::vector<double> slower = pencil.commits(0.5, {.computation = 1.5});
  EXPECT_NEAR(slower[0], longer, kRelative);
  EXPECT_NEAR(slower[1] - slower[0], 0.5 + longer, kRelative);
  // 3 s of all-reduce: 0.5 s of it beside the backward, 2.5 s alone, and 3 s of the other bucket's.
  const std::vector<double> network = pencil.commits(3, {.communication = 2});
  EXPECT_NEAR(network[1] - network[0], 2.5 + 3 + 5, kRelative);
  // Both: the backward's last second takes 1.25 s, in which 1.25 s / 2 of the all-reduce is done.
  const std::vector<double> both = pencil.commits(3, {.communication = 2, .computation = 1.25});
  EXPECT_NEAR(both[0], 5.25, kRelative);
  EXPECT_NEAR(both[1] - both[0], 3 - 0.625 + 3 + 5.25, kRelative);
}

TEST(Interference, OneRankStandsForAllThatDoAlike) {
  const Pencil pencil;
  const Interference interference{.communication = 1.7, .computation = 1.2};
  for (const double all_reduce : {0.3, 1.0, 4.0})
    EXPECT_EQ(pencil.commits(all_reduce, interference, 1), pencil.commits(all_reduce, interference, 5));
}

// Work is done at most as fast as without, at every instant; and a schedule that never does both is as fast:
// serial, but for updates, which go on beside the other buckets' collectives.
TEST(Interference, NeverHelpsAndLeavesSerialAlone) {
  for (std::uint64_t seed = 0; seed < testing::rounds(100U); ++seed) {
    Random random(seed);
    Workload workload = dear::testing::random_workload(random, 8);
    if (seed % 2 == 0) workload.update_seconds = 0;
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    const Link link{.alpha_seconds = random.unit() * 1e-4, .beta_seconds_per_byte = random.unit() * 1e-8};
    const Cluster alone = flat_cluster({.name = "flat", .link = link}, 2 + static_cast<int>(random.below(4)));
    Cluster shared = alone;
    shared.interference = {.communication = 1 + random.unit(), .computation = 1 + random.unit()};
    const cost::CollectiveTimes times = cost::times_on(alone, {.algorithm = "ring"});
    for (const char* const policy : {"serial", "wfbp", "dear", "fsdp"}) {
      for (const Detail detail : {Detail::closed_form, Detail::flows, Detail::blocks}) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << policy << ", " << name_of(detail));
        const auto seconds = [&](const Cluster& cluster) {
          return evaluate(find_policy(policy), workload, grouping, cluster, times,
                          {.detail = detail, .iterations = 4})
              .iteration.seconds;
        };
        const double with = seconds(shared), without = seconds(alone);
        EXPECT_GE(with, without * (1 - kRelative));
        if (std::string_view(policy) == "serial" && workload.update_seconds == 0) {
          EXPECT_NEAR(with, without, kRelative * without);
        }
      }
    }
  }
}

TEST(Interference, IsNotKnownOfSeveralJobs) {
  const Pencil pencil;
  Cluster cluster = flat_cluster({.name = "flat", .link = {.beta_seconds_per_byte = 1}}, 4);
  cluster.interference.communication = 1.1;
  EXPECT_THAT(
      [&] {
        evaluate(find_policy("wfbp"), pencil.workload, group(pencil.workload, PerLayer{}), cluster,
                 cost::times_on(cluster), {.detail = Detail::flows, .jobs = {.count = 2}});
      },
      ThrowsMessage<ConfigError>(HasSubstr("of one job alone")));
}

}  // namespace
}  // namespace dear::sim::interference_test
