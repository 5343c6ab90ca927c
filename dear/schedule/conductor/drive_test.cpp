#include "dear/schedule/conductor/drive.h"

#include <deque>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/random_job.h"

namespace dear::conductor::drive_test {
namespace {

// Ends whatever was started in an order drawn from a seed, one second apart.
class ShuffledCompletions final : public Completions {
 public:
  explicit ShuffledCompletions(std::uint64_t seed) : random_(seed) {}
  void add(Instance which) { running_.push_back(which); }

  Completion next() override {
    if (running_.empty()) throw Error("nothing runs");
    const auto at = running_.begin() + static_cast<std::ptrdiff_t>(random_.below(running_.size()));
    const Instance which = *at;
    running_.erase(at);
    return {which, ++now_};
  }
  double now_seconds() override { return now_; }

 private:
  testing::Random random_;
  std::deque<Instance> running_;
  double now_ = 0;
};

class RecordingExecutor final : public LaneExecutor {
 public:
  explicit RecordingExecutor(ShuffledCompletions& completions) : completions_(completions) {}
  Started start(Instance which, const Step& step) override {
    names.push_back(name_of(step.work));
    completions_.add(which);
    return Started::under_way;
  }
  std::vector<std::string> names;

 private:
  ShuffledCompletions& completions_;
};

Workload one_layer() {
  return {.name = "one layer",
          .tensors = {{.name = "w", .elements = 1}},
          .layers = {{.name = "only", .tensors = {0}}}};
}

TEST(Drive, GivesEachLanesStepsToItsExecutor) {
  const Workload workload = one_layer();
  const Schedule schedule = make_dear(workload, group(workload, AllInOne{}));
  ShuffledCompletions completions(1);
  RecordingExecutor compute(completions), update(completions), network(completions);
  const std::vector<StepSpan> spans = drive(schedule, 2, {compute, update, network}, completions);
  using Names = std::vector<std::string>;
  EXPECT_EQ(compute.names, (Names{"forward 0", "backward 0", "commit", "forward 0", "backward 0", "commit"}));
  EXPECT_EQ(update.names, (Names{"update of shard, bucket 0", "update of shard, bucket 0"}));
  EXPECT_EQ(network.names,
            (Names{"reduce-scatter of gradients, bucket 0", "all-gather of parameters, bucket 0",
                   "reduce-scatter of gradients, bucket 0", "all-gather of parameters, bucket 0"}));
  EXPECT_EQ(spans.size(), 12U);
}

TEST(Drive, SpansGoFromReleaseToEndInOrderOfEnd) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    testing::Random random(seed);
    const Workload workload = testing::random_workload(random, 6);
    const Grouping grouping = testing::random_grouping(random, workload);
    const Schedule schedule = make_schedule(policies()[random.below(policies().size())], workload, grouping);
    ShuffledCompletions completions(seed);
    RecordingExecutor executor(completions);
    const std::vector<StepSpan> spans = drive(schedule, 5, {executor, executor, executor}, completions);
    ASSERT_EQ(spans.size(), 5 * schedule.steps().size());
    std::vector<std::int64_t> ended(schedule.steps().size());
    double now = 0;
    for (const StepSpan& span : spans) {
      EXPECT_EQ(span.which.iteration, ended[span.which.step]++);
      EXPECT_EQ(span.end_seconds, ++now);
      EXPECT_LT(span.begin_seconds, span.end_seconds);
    }
  }
}

TEST(Drive, ThrowsWhatTheCompletionsThrow) {
  class Failing final : public Completions {
   public:
    Completion next() override { throw TransportError("the link is down"); }
    double now_seconds() override { return 0; }
  };
  const Workload workload = one_layer();
  const Schedule schedule = make_wfbp(workload, group(workload, AllInOne{}));
  ShuffledCompletions elsewhere(1);
  RecordingExecutor executor(elsewhere);
  Failing failing;
  EXPECT_THROW(drive(schedule, 1, {executor, executor, executor}, failing), TransportError);
}

TEST(Drive, RefusesAnEndThatIsNotDue) {
  class Wrong final : public Completions {
   public:
    explicit Wrong(Instance which) : which_(which) {}
    Completion next() override { return {which_, 0}; }
    double now_seconds() override { return 0; }

   private:
    Instance which_;
  };
  const Workload workload = one_layer();
  const Schedule schedule = make_wfbp(workload, group(workload, AllInOne{}));
  for (const Instance which : {Instance{0, 1}, Instance{1, 0}, Instance{99, 0}}) {
    ShuffledCompletions elsewhere(1);
    RecordingExecutor executor(elsewhere);
    Wrong wrong(which);
    EXPECT_THROW(drive(schedule, 3, {executor, executor, executor}, wrong), ScheduleError);
  }
}

// Step 0 takes 2 s and step 1, on another lane, 3 s; step 2 takes 1 s behind both, and the next step 1 waits
// for it.
TEST(Drive, InVirtualTimeStepsTakeTheirSeconds) {
  Graph graph;
  const LaneId first = graph.add_lane(), second = graph.add_lane();
  const StepId a = graph.add_step(first), b = graph.add_step(second), c = graph.add_step(first);
  graph.add_edge({a, c});
  graph.add_edge({b, c});
  graph.add_edge({c, b, 1});
  std::vector<std::tuple<StepId, std::int64_t, double, double>> seen;
  for (const StepSpan& span : drive(graph, 2, std::vector<double>{2, 3, 1}))
    seen.emplace_back(span.which.step, span.which.iteration, span.begin_seconds, span.end_seconds);
  EXPECT_EQ(seen, (std::vector<std::tuple<StepId, std::int64_t, double, double>>{
                      {a, 0, 0, 2}, {b, 0, 0, 3}, {c, 0, 3, 4}, {a, 1, 4, 6}, {b, 1, 4, 7}, {c, 1, 7, 8}}));
}

TEST(Drive, NoIterationsStartNothing) {
  const Workload workload = one_layer();
  const Schedule schedule = make_dear(workload, group(workload, AllInOne{}));
  ShuffledCompletions completions(1);
  RecordingExecutor executor(completions);
  EXPECT_TRUE(drive(schedule, 0, {executor, executor, executor}, completions).empty());
  EXPECT_TRUE(executor.names.empty());
}

}  // namespace
}  // namespace dear::conductor::drive_test
