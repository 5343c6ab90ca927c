#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/policies/testing/random_job.h"
#include "dear/workload/layers/testing/workloads.h"

// Properties of any job on any cluster, asked of thousands.
namespace dear::sim::many_jobs_test {
namespace {

using dear::testing::Random;

constexpr double kRelative = 1e-9;
// Longer than any transient of jobs this small.
constexpr EvaluateOptions kSteady{.iterations = 32};

Link random_link(Random& random) {
  return {.alpha_seconds = random.below(3) == 0 ? 0 : random.unit() * 1e-4,
          .beta_seconds_per_byte = random.unit() * 1e-8};
}

// Flat, nodes, or pods of nodes; shared cards, switches that carry less than their ports.
Cluster random_cluster(Random& random) {
  Cluster cluster{.name = "random", .dimensions = {}};
  const std::size_t dimensions = 1 + random.below(3);
  for (std::size_t i = 0; i < dimensions; ++i)
    cluster.dimensions.push_back({.name = fmt::format("d{}", i),
                                  .size = 1 + static_cast<int>(random.below(5)),
                                  .link = random_link(random),
                                  .links = 1 + static_cast<int>(random.below(2)),
                                  .oversubscription = random.below(3) == 0 ? 1 + 3 * random.unit() : 1});
  return cluster;
}

Cluster scaled(Cluster cluster, double alpha, double beta) {
  for (Dimension& dimension : cluster.dimensions) {
    dimension.link.alpha_seconds *= alpha;
    dimension.link.beta_seconds_per_byte *= beta;
  }
  return cluster;
}

// r is what the policy's bytes take in one chunk, without start-up, by the quickest algorithm there is: less
// than any schedule of its can spend.
TEST(ManyJobs, NoPolicyIsFasterThanItsBytesAndItsComputation) {
  for (std::uint64_t seed = 0; seed < testing::rounds(2500U); ++seed) {
    Random random(seed);
    const Workload workload = dear::testing::random_workload(random, 5);
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    const Cluster cluster = random_cluster(random);
    const cost::CollectiveTimes times = cost::times_on(cluster);
    const double least = cost::times_on(scaled(cluster, 0, 1)).all_reduce(workload.bytes());
    const double computation = workload.forward_seconds() + workload.backward_seconds();
    for (const Policy& policy : policies()) {
      const Evaluation evaluation = evaluate(policy, workload, grouping, cluster, times, kSteady);
      const double seconds = evaluation.iteration.seconds * (1 + kRelative);
      ASSERT_GE(seconds, std::max(computation, policy.traffic * least))
          << "seed " << seed << ", policy " << policy.name;
      ASSERT_GE(seconds, evaluation.bound_seconds) << "seed " << seed << ", policy " << policy.name;
    }
  }
}

// Alike layers, a bucket each, updates of no time; f, b and r at random. See [Note: the part that nothing can
// hide]: each is its bound and at most one bucket's part of each stage. So where the bounds are farther apart
// than that, whoever has the smaller one wins: DeAR unless r/2 > f and b > r/2.
TEST(ManyJobs, DearAndWfbpStandAsTheirClosedFormsSay) {
  int dear_wins = 0;
  int wfbp_wins = 0;
  for (std::uint64_t seed = 0; seed < testing::rounds(2500U); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto n = static_cast<LayerId>(1 + random.below(20));
    const double f = random.unit(), b = 3 * random.unit(), r = 6 * random.unit();
    const Workload workload = dear::testing::workload_of(
        {.layers = n, .elements = 1000, .forward_seconds = f / n, .backward_seconds = b / n});
    // Each of two ranks sends every byte once.
    const Cluster cluster = flat_cluster(
        {.name = "pair", .link = {.alpha_seconds = 0, .beta_seconds_per_byte = r / (4000.0 * n)}}, 2);
    const auto of = [&](std::string_view policy) {
      return evaluate(find_policy(policy), workload, group(workload, PerLayer{}), cluster,
                      cost::times_on(cluster), kSteady);
    };
    const Evaluation dear = of("dear"), wfbp = of("wfbp");
    ASSERT_NEAR(dear.r_seconds, r, 1e-9);
    ASSERT_NEAR(wfbp.bound_seconds, f + std::max(b, r), 1e-9);
    ASSERT_NEAR(dear.bound_seconds, std::max(f, r / 2) + std::max(b, r / 2), 1e-9);
    const double rest_of_wfbp = std::min(b, r) / n;
    const double rest_of_dear = (std::min(f, r / 2) + std::min(b, r / 2)) / n;
    ASSERT_NEAR(wfbp.iteration.seconds, wfbp.bound_seconds + rest_of_wfbp, 1e-9);
    ASSERT_NEAR(dear.iteration.seconds, dear.bound_seconds + rest_of_dear, 1e-9);
    if (dear.bound_seconds + rest_of_dear < wfbp.bound_seconds) ++dear_wins;
    if (wfbp.bound_seconds + rest_of_wfbp >= dear.bound_seconds) continue;
    ++wfbp_wins;
    EXPECT_GT(r / 2, f);
    EXPECT_GT(b, r / 2);
    EXPECT_GT(dear.iteration.seconds, wfbp.iteration.seconds);
  }
  // Both are there.
  EXPECT_GT(dear_wins, testing::rounds(500));
  EXPECT_GT(wfbp_wins, testing::rounds(200));
}

// A schedule whose order is fixed is a graph of maxima and sums: no step ends later when others take less.
TEST(ManyJobs, MoreBandwidthOrLessStartUpNeverSlowsAFixedOrder) {
  for (std::uint64_t seed = 0; seed < testing::rounds(2000U); ++seed) {
    Random random(seed);
    const Workload workload = dear::testing::random_workload(random, 5);
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    const Cluster cluster = random_cluster(random);
    const Cluster better = scaled(cluster, random.below(2) == 0 ? 1 : random.unit(), random.unit());
    for (const char* const name : {"serial", "wfbp", "mg-wfbp", "horovod", "ddp", "zero-1", "megatron",
                                   "fsdp", "dear-replicated", "dear"}) {
      const Policy& policy = find_policy(name);
      const auto seconds = [&](const Cluster& on) {
        return evaluate(policy, workload, grouping, on, cost::times_on(on), kSteady).iteration.seconds;
      };
      ASSERT_LE(seconds(better), seconds(cluster) * (1 + kRelative)) << "seed " << seed << ", " << name;
    }
  }
}

}  // namespace
}  // namespace dear::sim::many_jobs_test
