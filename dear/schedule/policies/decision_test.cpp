#include "dear/schedule/policies/decision.h"

#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/graph/precedence.h"
#include "dear/schedule/policies/collective.h"
#include "dear/schedule/policies/one_copy.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/random_job.h"

namespace dear::decision_test {
namespace {

using ::testing::HasSubstr;
using testing::Random;

std::vector<StepId> network_lane(const Schedule& schedule) { return schedule.steps_on(LaneKind::network); }

// Under every policy that trains, for any job: first among the collectives, after the last commit, before the
// forwards of the next iteration; and nothing waits for it that did not before.
TEST(Decision, IsTheFirstCollectiveOfEveryPolicy) {
  Random random(1);
  for (int job = 0; job < 60; ++job) {
    const Workload workload = testing::random_workload(random, 12);
    const Grouping grouping = testing::random_grouping(random, workload);
    for (const Policy& policy : training_policies()) {
      const Schedule without = make_schedule(policy, workload, grouping);
      const Schedule schedule = with_decision(without, workload, grouping);
      ASSERT_TRUE(schedule.decision().has_value()) << policy.name;
      EXPECT_FALSE(without.decision().has_value()) << policy.name;
      EXPECT_NE(schedule.digest(), without.digest()) << policy.name;
      EXPECT_EQ(schedule.steps().size(), without.steps().size() + 1);
      const StepId decision = *schedule.decision();
      EXPECT_EQ(network_lane(schedule).front(), decision) << policy.name;
      EXPECT_EQ(name_of(schedule.steps()[decision].work), "broadcast of decision");
      EXPECT_EQ(bytes_of(std::get<Communicate>(schedule.steps()[decision].work), workload, grouping), 64);
      const graph::Precedence edges(schedule.steps().size(), schedule.edges());
      EXPECT_TRUE(edges.has_edge(schedule.commit(), decision, 1));
      for (LayerId layer = 0; layer < schedule.layer_count(); ++layer)
        EXPECT_TRUE(edges.has_edge(decision, schedule.forward_of(layer), 1));
      for (const Edge& edge : schedule.edges()) EXPECT_TRUE(edge.from != decision || edge.back == 1);
    }
  }
}

// With one bucket the one reduction waits for the commit, and so does what travels before it.
TEST(Decision, TravelsBeforeTheReductionOfOneCopy) {
  Random random(2);
  const Workload workload = testing::random_workload(random, 6);
  const Grouping grouping = group(workload, AllInOne{});
  const Schedule shared = with_one_copy(make_dear(workload, grouping), workload, grouping);
  const Schedule schedule = with_decision(shared, workload, grouping);
  const graph::Precedence edges(schedule.steps().size(), schedule.edges());
  EXPECT_TRUE(edges.has_edge(schedule.commit(), *schedule.decision(), 0));
}

TEST(Decision, ComesOnceAnIteration) {
  Random random(3);
  const Workload workload = testing::random_workload(random, 6);
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule once = with_decision(make_dear(workload, grouping), workload, grouping);
  try {
    with_decision(once, workload, grouping);
    FAIL() << "decided twice";
  } catch (const ScheduleError& error) {
    EXPECT_THAT(error.what(), HasSubstr("broadcast of decision"));
  }
}

// Neither before rank 0 has decided, nor after the forward in which the decision is in force.
TEST(Decision, IsRefusedAtTheWrongTime) {
  Random random(4);
  const Workload workload = testing::random_workload(random, 6);
  const Grouping grouping = group(workload, AllInOne{});
  const auto refused = [&](bool after_commit, const char* message) {
    ScheduleBuilder builder = testing::draft_of(make_dear(workload, grouping), workload, grouping);
    const LaneId own = builder.lane("second network", LaneKind::network);
    const StepId decision = builder.add(Communicate{Collective::broadcast, Payload::decision}, own);
    const Schedule dear = make_dear(workload, grouping);
    if (after_commit) {
      builder.edge(dear.commit(), decision, 1);
    } else {
      builder.edge(decision, dear.forward_of(0), 1);
    }
    try {
      static_cast<void>(std::move(builder).build());
      FAIL() << message;
    } catch (const ScheduleError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  };
  refused(true, "(forward 0) may run before");
  refused(false, "decision) may run before");
}

}  // namespace
}  // namespace dear::decision_test
