#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/cost/cluster_times.h"

namespace dear::cost {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Collective kOfShards[] = {Collective::reduce_scatter, Collective::all_gather,
                                    Collective::all_reduce};

TEST(TimesInChunks, AreThoseOfPlans) {
  const Cluster cluster = find_cluster("a100-100gbit-512");
  for (const char* const algorithm : {"baseline", "themis"}) {
    const ClusterTimes times(cluster, {.algorithm = algorithm});
    for (const Collective collective : kOfShards) {
      for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{100'000},
                                       std::int64_t{25} << 20, std::int64_t{3} << 30}) {
        // A fixed number of chunks jumps from size to size while pieces are as small as they may be.
        if (algorithm == std::string_view("baseline") && bytes == 100'000) continue;
        const double planned = make_chunk_plan(cluster, collective, bytes, {.algorithm = algorithm}).seconds;
        EXPECT_NEAR(times.seconds(collective, bytes), planned, 0.02 * planned) << bytes;
        EXPECT_EQ(times.choose(collective, bytes).algorithm, algorithm);
      }
      // Sizes for which plans are made.
      for (const std::int64_t bytes : {std::int64_t{64}, std::int64_t{1} << 20, std::int64_t{1} << 40}) {
        EXPECT_DOUBLE_EQ(times.seconds(collective, bytes),
                         make_chunk_plan(cluster, collective, bytes, {.algorithm = algorithm}).seconds);
      }
    }
  }
}

TEST(TimesInChunks, AreNeverLongerThanThoseOfTheHierarchy) {
  for (const ClusterPreset& preset : clusters()) {
    const ClusterTimes themis(preset.cluster, {.algorithm = "themis"});
    const ClusterTimes baseline(preset.cluster, {.algorithm = "baseline"});
    for (const Collective collective : kOfShards) {
      for (std::int64_t bytes = 1; bytes < std::int64_t{1} << 34; bytes *= 37) {
        EXPECT_LE(themis.seconds(collective, bytes), baseline.seconds(collective, bytes) * (1 + 1e-9))
            << preset.cluster.name;
      }
    }
    EXPECT_DOUBLE_EQ(
        themis.seconds(Collective::broadcast, 1 << 20),
        ClusterTimes(preset.cluster, {.algorithm = "hierarchical"}).seconds(Collective::broadcast, 1 << 20));
  }
}

TEST(TimesInChunks, AnyThreadAsks) {
  const ClusterTimes times(find_cluster("a100-100gbit-512"), {.algorithm = "themis"});
  std::vector<double> seconds(4);
  std::vector<std::thread> threads;
  for (double& found : seconds) {
    threads.emplace_back([&] { found = times.seconds(Collective::all_reduce, 12'345'678); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const double found : seconds) EXPECT_EQ(found, seconds.front());
}

TEST(TimesInChunks, OfNodesAreThoseOfTheirParts) {
  const CollectiveTimes times = times_on(find_cluster("a100-100gbit-512"), {.algorithm = "themis"});
  ASSERT_TRUE(times.nodes);
  EXPECT_GT(times.nodes->inside.all_reduce(1 << 20), 0);
  EXPECT_GT(times.nodes->across.all_reduce(1 << 20), 0);
}

TEST(TimesInChunks, AreOfferedWhereANameIsWrong) {
  EXPECT_THAT([] { ClusterTimes(find_cluster("a100-100gbit-512"), {.algorithm = "thetis"}); },
              ThrowsMessage<ConfigError>(HasSubstr("themis-scf")));
}

}  // namespace
}  // namespace dear::cost
