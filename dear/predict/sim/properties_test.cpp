#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/predict/sim/simulate.h"
#include "dear/schedule/conductor/testing/order_check.h"
#include "dear/schedule/graph/critical_cycle.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/random_job.h"
#include "dear/workload/layers/testing/workloads.h"

namespace dear::sim::properties_test {
namespace {

using dear::testing::Random;
using ::testing::IsEmpty;

constexpr double kRelative = 1e-9;

// Small jobs, and those whose buckets travel in chunks.
Workload random_job(Random& random, std::size_t max_layers) {
  Workload workload = dear::testing::random_workload(random, max_layers);
  if (random.below(2) == 0)
    for (Tensor& tensor : workload.tensors) tensor.elements *= 100;
  if (random.below(2) == 0) workload.buffer_bytes = static_cast<std::int64_t>(random.below(100'000));
  return workload;
}

// Floors that hold for every schedule. In steady state it repeats itself at the rate of its critical cycle;
// one step after the other would do, so that rate is never over the sum, and neither the program nor the
// network can be busy for longer than it. Its policy's bound holds whatever the start-up time of messages,
// for r is what the schedule's own collectives take; it takes a first layer with parameters, as another could
// run its forward while reduce-scatters still go on.
TEST(Properties, RandomJobs) {
  for (std::uint64_t seed = 0; seed < testing::rounds(200U); ++seed) {
    Random random(seed);
    const Workload workload = random_job(random, 12);
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    const bool usual = random.below(2) == 0;
    const Link link{.alpha_seconds = random.below(2) == 0 ? 0 : random.unit() * 1e-4,
                    .beta_seconds_per_byte = random.unit() * 1e-8};
    const int ranks = 1 + static_cast<int>(random.below(8));
    const cost::CollectiveTimes times = cost::ring_times(link, ranks);
    for (const Policy& policy : policies()) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", policy " << policy.name);
      const Grouping& used = usual ? policy.usual_grouping(workload, times) : grouping;
      const Schedule schedule = make_schedule(policy, workload, used, times);
      const Result result = simulate(schedule, workload, used, link, {.ranks = ranks, .iterations = 64});
      const std::vector<double> seconds = step_seconds(schedule, workload, used, link, ranks);
      const double critical = critical_cycle(schedule.graph(), seconds).seconds;
      const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
      EXPECT_NEAR(result.iteration_seconds, critical, kRelative * critical);
      EXPECT_LE(result.iteration_seconds, sum * (1 + kRelative));
      EXPECT_GE(result.iteration_seconds, result.bound_seconds * (1 - kRelative));
      EXPECT_GE(result.iteration_seconds,
                stale_gradient_floor(result.f_seconds, result.b_seconds, result.r_seconds) * (1 - kRelative));
      EXPECT_GE(result.exposed_communication_seconds, -kRelative * critical);
      EXPECT_THAT(conductor::order_violations(schedule, result.spans, {}), IsEmpty());
    }
  }
}

// The traffic of each policy, in all-reduces of everything.
TEST(Properties, EachPolicySendsItsTraffic) {
  const Link link{.alpha_seconds = 0, .beta_seconds_per_byte = 1e-8};
  for (std::uint64_t seed = 0; seed < testing::rounds(100U); ++seed) {
    Random random(seed);
    Workload workload = random_job(random, 8);
    workload.buffer_bytes = 0;
    const cost::CollectiveTimes times = cost::ring_times(link, 4);
    const double all_reduce = times.all_reduce(workload.bytes());
    for (const Policy& policy : policies()) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", policy " << policy.name);
      const Grouping grouping = policy.usual_grouping(workload, times);
      const Schedule schedule = make_schedule(policy, workload, grouping, times);
      const Result result = simulate(schedule, workload, grouping, link, {.ranks = 4, .iterations = 4});
      EXPECT_NEAR(result.r_seconds, policy.traffic * all_reduce, kRelative * all_reduce);
    }
  }
}

TEST(Properties, SchedulesLikeNoPolicy) {
  for (std::uint64_t seed = 0; seed < testing::rounds(300U); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Workload workload = random_job(random, 6);
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    const Policy& policy = policies()[random.below(policies().size())];
    const Schedule schedule = dear::testing::with_random_edges(
        random, make_schedule(policy, workload, grouping), workload, grouping, 1 + random.below(8));
    const Link link{.alpha_seconds = random.unit() * 1e-4, .beta_seconds_per_byte = random.unit() * 1e-8};
    const Result result = simulate(schedule, workload, grouping, link, {.ranks = 4, .iterations = 240});
    const double critical =
        critical_cycle(schedule.graph(), step_seconds(schedule, workload, grouping, link, 4)).seconds;
    EXPECT_NEAR(result.iteration_seconds, critical, kRelative * critical);
    EXPECT_THAT(conductor::order_violations(schedule, result.spans, {}), IsEmpty());
  }
}

// [Note: the part that nothing can hide] n equal layers, a bucket each, no time for updates; f, b, r the
// sums. The first collective after backward begins waits for the backward of a whole layer, and the last one
// follows the last backward; the next forward begins after the first bucket is there, and its last layer
// after the last bucket. A pipeline of two stages over n equal parts takes the longer stage and one part of
// the shorter:
//   wfbp      f + [max(b, r) + min(b, r) / n]
//   zero-1    f + [max(b, r/2) + min(b, r/2) / n] + r/2
//   dear      [max(f, r/2) + min(f, r/2) / n] + [max(b, r/2) + min(b, r/2) / n]
// which is the bound and the part of one bucket. Megatron does as dear does: one bucket ahead is as good as
// all where layers are alike.
TEST(Properties, RegularJobsReachTheBoundButForOneBucket) {
  for (const LayerId n : {1U, 2U, 5U, 50U}) {
    for (const double r_over_b : {0.25, 0.5, 1.0, 1.9, 2.0, 3.0, 8.0}) {
      SCOPED_TRACE(::testing::Message() << n << " layers, r = " << r_over_b << " b");
      const double f = 1, b = 2, r = r_over_b * b;
      const Workload workload = dear::testing::workload_of(
          {.layers = n, .elements = 4'000'000, .forward_seconds = f / n, .backward_seconds = b / n});
      const Grouping grouping = group(workload, PerLayer{});
      // Three rounds of a quarter, twice: 1.5 times the bytes. A layer's are all of ByteScheduler's credit.
      const Link link{.alpha_seconds = 0, .beta_seconds_per_byte = r / (1.5 * 16e6 * n)};
      const auto part = [n](double x, double y) { return std::max(x, y) + std::min(x, y) / n; };
      const auto iteration = [&](std::string_view policy) {
        const Schedule schedule =
            make_schedule(find_policy(policy), workload, grouping, cost::ring_times(link, 4));
        return simulate(schedule, workload, grouping, link, {.ranks = 4}).iteration_seconds;
      };
      EXPECT_NEAR(iteration("serial"), f + b + r, 1e-9 * (f + b + r));
      for (const std::string_view policy : {"wfbp", "mg-wfbp", "horovod", "ddp"})
        EXPECT_NEAR(iteration(policy), f + part(b, r), 1e-9 * (f + b + r));
      EXPECT_NEAR(iteration("zero-1"), f + part(b, r / 2) + r / 2, 1e-9 * (f + b + r));
      for (const std::string_view policy : {"dear", "dear-replicated", "megatron"})
        EXPECT_NEAR(iteration(policy), part(f, r / 2) + part(b, r / 2), 1e-9 * (f + b + r));
      // All but the first bucket's all-reduce and the backward before the first can hide everything.
      const double floor = stale_gradient_floor(f, b, r), one_layer = (f + b + r) / n;
      for (const std::string_view policy : {"bytescheduler", "us-byte"}) {
        EXPECT_GE(iteration(policy), floor * (1 - kRelative));
        EXPECT_LE(iteration(policy), (floor + 2 * one_layer) * (1 + kRelative)) << policy;
      }
      const double fsdp = std::max(f, r / 2) + std::max(b, r);
      EXPECT_GE(iteration("fsdp"), fsdp * (1 - kRelative));
      EXPECT_LE(iteration("fsdp"), (fsdp + 2 * one_layer) * (1 + kRelative));
    }
  }
}

}  // namespace
}  // namespace dear::sim::properties_test
