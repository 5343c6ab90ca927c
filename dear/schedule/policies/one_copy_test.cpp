#include "dear/schedule/policies/one_copy.h"

#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/graph/precedence.h"
#include "dear/schedule/policies/testing/random_job.h"

namespace dear::one_copy_test {
namespace {

using ::testing::HasSubstr;
using testing::Random;

// Step 1 of the proof in [Note: one copy], for any job: every update follows, by edges alone, a collective
// that follows the commit of its own iteration.
TEST(OneCopy, EveryUpdateFollowsACollectiveThatFollowsTheCommit) {
  Random random(1);
  for (int job = 0; job < 300; ++job) {
    const Workload workload = testing::random_workload(random, 12);
    const Grouping grouping = testing::random_grouping(random, workload);
    const Schedule dear = make_dear(workload, grouping);
    const Schedule shared = with_one_copy(dear, workload, grouping);
    EXPECT_EQ(shared.steps().size(), dear.steps().size());
    EXPECT_EQ(shared.policy(), "dear");
    EXPECT_NE(shared.digest(), dear.digest());  // ranks that differ in it are found out
    const graph::Precedence edges(shared.steps().size(), shared.edges());
    for (BucketId bucket = 0; bucket < shared.bucket_count(); ++bucket) {
      bool follows = false;
      for (StepId step = 0; step < shared.steps().size(); ++step) {
        const auto* work = std::get_if<Communicate>(&shared.steps()[step].work);
        follows = follows || (work != nullptr && edges.has_edge(shared.commit(), step, 0) &&
                              edges.has_edge(step, shared.update_of(bucket), 0));
      }
      EXPECT_TRUE(follows) << "bucket " << bucket;
    }
  }
}

// All reductions but the last stay under the backward: they wait for no commit.
TEST(OneCopy, HoldsUpTheLastReductionAlone) {
  Random random(2);
  for (int job = 0; job < 100; ++job) {
    const Workload workload = testing::random_workload(random, 12);
    const Grouping grouping = group(workload, PerLayer{});
    const Schedule shared = with_one_copy(make_dear(workload, grouping), workload, grouping);
    const graph::Precedence order(shared.steps().size(), edges_with_lanes(shared, {.compute = true}));
    const std::vector<std::uint8_t> after_commit = order.crossings_from(shared.commit());
    for (StepId step = 0; step < shared.steps().size(); ++step) {
      const auto* work = std::get_if<Communicate>(&shared.steps()[step].work);
      if (work == nullptr || work->collective != Collective::reduce_scatter) continue;
      EXPECT_EQ(after_commit[step] == 0, work->bucket == 0) << name_of(shared.steps()[step].work);
    }
  }
}

TEST(OneCopy, ChangesNothingOfUpdatesAheadOfTheCommit) {
  Random random(3);
  const Workload workload = testing::random_workload(random, 12);
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule eager = make_dear_eager(workload, grouping);
  EXPECT_EQ(with_one_copy(eager, workload, grouping).digest(), eager.digest());
}

TEST(OneCopy, RefusesUpdatesOfWholeBuckets) {
  Random random(4);
  const Workload workload = testing::random_workload(random, 12);
  const Grouping grouping = group(workload, PerLayer{});
  for (const Policy& policy : training_policies()) {
    if (policy.residence.optimizer_sharded) {
      EXPECT_NO_THROW(require_one_copy_policy(policy));
      continue;
    }
    EXPECT_THROW(
        static_cast<void>(with_one_copy(make_schedule(policy, workload, grouping), workload, grouping)),
        ScheduleError)
        << policy.name;
    try {
      require_one_copy_policy(policy);
      ADD_FAILURE() << policy.name;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("dear-eager"));
      EXPECT_THAT(error.what(), HasSubstr(std::string(policy.name)));
    }
  }
}

}  // namespace
}  // namespace dear::one_copy_test
