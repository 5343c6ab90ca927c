#include "dear/predict/sim/jobs.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/policy.h"

namespace dear::sim::jobs_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kByteSeconds = 1e-9;

// One layer, whose gradients are 4 MB, on ranks in nodes of one network card.
Workload make_workload(double compute_seconds) {
  Workload workload{.name = "test"};
  workload.tensors.push_back({"weight", 1'000'000, DType::f32});
  workload.layers.push_back({.name = "layer",
                             .tensors = {0},
                             .forward_seconds = compute_seconds / 3,
                             .backward_seconds = compute_seconds * 2 / 3});
  return workload;
}

Cluster make_cluster(int ranks_per_node, int nodes, double oversubscription = 1) {
  return {.name = "test",
          .dimensions = {{.name = "node", .size = ranks_per_node, .link = {}},
                         {.name = "spine",
                          .size = nodes,
                          .link = {.alpha_seconds = 0, .beta_seconds_per_byte = kByteSeconds},
                          .oversubscription = oversubscription}}};
}

Evaluation run(const Cluster& cluster, const Jobs& jobs, double compute_seconds,
               Detail detail = Detail::flows) {
  const Workload workload = make_workload(compute_seconds);
  const auto times = cost::times_on(with_ranks(cluster, cluster.ranks() / jobs.count));
  return evaluate(find_policy("serial"), workload, Fusion::parse("all")(workload), cluster, times,
                  {.detail = detail, .jobs = jobs});
}

TEST(Jobs, EveryRankIsOneMemberOfOneJob) {
  for (const Placement placement : {Placement::packed, Placement::spread}) {
    const Jobs jobs{.count = 3, .placement = placement};
    std::set<std::pair<int, int>> places;
    for (int rank = 0; rank < 12; ++rank) {
      const int job = jobs.job_of(rank, 12), member = jobs.member_of(rank, 12);
      EXPECT_EQ(jobs.rank_of(job, member, 12), rank);
      EXPECT_LT(job, 3);
      EXPECT_LT(member, 4);
      places.emplace(job, member);
    }
    EXPECT_EQ(places.size(), 12U);
  }
  EXPECT_EQ((Jobs{.count = 2, .placement = Placement::packed}.job_of(3, 8)), 0);
  EXPECT_EQ((Jobs{.count = 2, .placement = Placement::spread}.job_of(3, 8)), 1);
}

TEST(Jobs, PlacementsHaveNames) {
  EXPECT_EQ(parse_placement("packed"), Placement::packed);
  EXPECT_EQ(parse_placement("spread"), Placement::spread);
  EXPECT_THAT([] { parse_placement("near"); }, ThrowsMessage<ConfigError>(HasSubstr("packed or spread")));
}

// Two jobs of two ranks on two nodes of two. All-reduce of 4 MB on 2 ranks: 4 MB each way, 4 ms a card.
TEST(Jobs, ThatAlwaysSendHaveHalfTheNetworkCardEach) {
  const Cluster cluster = make_cluster(2, 2);
  for (const Detail detail : {Detail::flows, Detail::blocks}) {
    const Evaluation shared = run(cluster, {.count = 2}, 0, detail);
    EXPECT_NEAR(shared.iteration.seconds, 8e-3, 1e-9) << name_of(detail);
    EXPECT_NEAR(run(make_cluster(1, 2), {}, 0, detail).iteration.seconds, 4e-3, 1e-9) << name_of(detail);
  }
}

// One job computes while the other sends: 4 ms each.
TEST(Jobs, ThatTakeTurnsDoNotDisturbEachOther) {
  EXPECT_NEAR(run(make_cluster(2, 2), {.count = 2}, 8e-3).iteration.seconds, 12e-3, 1e-9);
}

TEST(Jobs, PackedOnNodesOfTheirOwnShareOnlyASpineThatIsTooNarrow) {
  const Jobs packed{.count = 2, .placement = Placement::packed};
  EXPECT_NEAR(run(make_cluster(1, 4), packed, 0).iteration.seconds, 4e-3, 1e-9);
  // Four cards over a switch that carries two of them at once.
  EXPECT_NEAR(run(make_cluster(1, 4, 2), packed, 0).iteration.seconds, 8e-3, 1e-9);
}

TEST(Jobs, WhatCannotBeSharedIsRefused) {
  EXPECT_THAT([] { run(make_cluster(2, 2), {.count = 2}, 0, Detail::closed_form); },
              ThrowsMessage<ConfigError>(HasSubstr("flows or blocks")));
  const Workload workload = make_workload(0);
  const Cluster cluster = make_cluster(2, 2);
  const auto with = [&](int jobs) {
    evaluate(find_policy("serial"), workload, Fusion::parse("all")(workload), cluster,
             cost::times_on(cluster), {.detail = Detail::flows, .jobs = {.count = jobs}});
  };
  EXPECT_THAT([&] { with(3); }, ThrowsMessage<ConfigError>(HasSubstr("4 ranks cannot be shared among 3")));
  EXPECT_THAT([&] { with(0); }, ThrowsMessage<ConfigError>(HasSubstr("at least 1")));
}

}  // namespace
}  // namespace dear::sim::jobs_test
