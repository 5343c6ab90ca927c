#include "dear/schedule/graph/frontier.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/pieces.h"
#include "dear/schedule/policies/testing/random_job.h"

namespace dear::frontier_test {
namespace {

using testing::two_layers;

using testing::Random;

// The steps that may run by the definition of an edge alone, from the numbers of iterations that steps have
// ended.
class Oracle {
 public:
  Oracle(const Schedule& schedule, const Frontier::Options& options)
      : iterations_(options.iterations), in_(schedule.steps().size()) {
    for (const Edge& edge : edges_with_lanes(schedule.graph(), options.free)) in_[edge.to].push_back(edge);
  }

  std::set<Instance> running(const std::vector<std::int64_t>& done) const {
    std::set<Instance> running;
    for (StepId step = 0; step < in_.size(); ++step) {
      const std::int64_t iteration = done[step];
      const bool may = std::all_of(in_[step].begin(), in_[step].end(), [&](const Edge& edge) {
        const std::int64_t needed = iteration - edge.back;
        return needed < 0 || done[edge.from] > needed;
      });
      if (iteration < iterations_ && may) running.insert({step, iteration});
    }
    return running;
  }

 private:
  std::int64_t iterations_;
  std::vector<std::vector<Edge>> in_;
};

// Every state that any order of completions can reach: in each, exactly those steps run that may.
void explore_all(const Schedule& schedule, const Frontier::Options& options, std::size_t& states) {
  const Oracle oracle(schedule, options);
  struct State {
    Frontier frontier;
    std::set<Instance> running;
    std::vector<std::int64_t> done;
  };
  Frontier frontier(schedule.graph(), options);
  const std::vector<Instance> started = frontier.start();
  std::vector<State> open{
      {frontier, {started.begin(), started.end()}, std::vector<std::int64_t>(schedule.steps().size())}};
  std::set<std::vector<std::int64_t>> seen;
  std::size_t ends = 0;
  while (!open.empty()) {
    const State state = std::move(open.back());
    open.pop_back();
    ASSERT_EQ(state.running, oracle.running(state.done));
    ASSERT_EQ(state.frontier.finished(), state.running.empty());
    if (!seen.insert(state.done).second) continue;
    if (state.running.empty()) {
      ++ends;
      ASSERT_TRUE(
          std::all_of(state.done.begin(), state.done.end(), [&](auto n) { return n == options.iterations; }));
    }
    for (const Instance& which : state.running) {
      State next = state;
      next.running.erase(which);
      ++next.done[which.step];
      for (const Instance& released : next.frontier.complete(which.step))
        ASSERT_TRUE(next.running.insert(released).second) << name_of(schedule.steps()[released.step].work);
      open.push_back(std::move(next));
    }
  }
  EXPECT_EQ(ends, 1U);
  states = seen.size();
}

TEST(Frontier, ReleasesExactlyWhatMayRunInEveryReachableState) {
  const Workload workload = two_layers();
  const Grouping grouping = group(workload, PerLayer{});
  for (const Policy& policy : policies()) {
    SCOPED_TRACE(policy.name);
    const Schedule schedule = make_schedule(policy, workload, grouping);
    std::size_t states = 0;
    explore_all(schedule, {.iterations = 4}, states);
    EXPECT_GT(states, 4 * schedule.steps().size());
  }
}

TEST(Frontier, ReleasesExactlyWhatMayRunWhereTheProgramKeepsItsOwnOrder) {
  Workload workload = two_layers();
  for (const bool tied : {false, true}) {
    workload.layers[1].tensors = tied ? std::vector<TensorId>{0, 1} : std::vector<TensorId>{1};
    const Grouping grouping = group(workload, AllInOne{});
    for (const Policy& policy : policies()) {
      SCOPED_TRACE(policy.name);
      std::size_t states = 0;
      const Schedule schedule = make_schedule(policy, workload, grouping);
      explore_all(schedule,
                  {.free = free_lanes(schedule, {.compute = true, .network = true}), .iterations = 2},
                  states);
      EXPECT_GT(states, 50U);
    }
  }
}

TEST(Frontier, AFreeComputeLaneReleasesWhatOnlyItsOrderHeldBack) {
  const Workload workload = two_layers();
  const Schedule schedule = make_dear(workload, group(workload, AllInOne{}));
  Frontier ordered(schedule.graph());
  EXPECT_EQ(ordered.start(), (std::vector<Instance>{{schedule.forward_of(0), 0}}));
  Frontier free(schedule.graph(), {.free = free_lanes(schedule, {.compute = true})});
  EXPECT_EQ(free.start().size(), 5U);  // two forwards, two backwards, the commit
  // Backward 0 of the next iteration waits for the update that still reads its gradients.
  (void)free.complete(schedule.backward_of(0));
  EXPECT_FALSE(free.running(schedule.backward_of(0)));
}

TEST(Frontier, RandomSchedulesInRandomOrders) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Workload workload = testing::random_workload(random, 5);
    const Grouping grouping = testing::random_grouping(random, workload);
    const Policy& policy = policies()[random.below(policies().size())];
    const Schedule schedule = testing::with_random_edges(random, make_schedule(policy, workload, grouping),
                                                         workload, grouping, random.below(8));
    const Frontier::Options options{
        .free = free_lanes(schedule, {.compute = random.below(2) == 0, .network = random.below(2) == 0}),
        .iterations = 6};
    const Oracle oracle(schedule, options);
    Frontier frontier(schedule.graph(), options);
    std::vector<Instance> running = frontier.start();
    std::vector<std::int64_t> done(schedule.steps().size());
    std::set<Instance> ever(running.begin(), running.end());
    while (!running.empty()) {
      ASSERT_EQ(std::set<Instance>(running.begin(), running.end()), oracle.running(done));
      ASSERT_FALSE(frontier.finished());
      const std::size_t pick = random.below(running.size());
      const Instance which = running[pick];
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(pick));
      const std::size_t before = running.size();
      frontier.complete(which.step, running);
      ++done[which.step];
      ASSERT_EQ(frontier.done(which.step), done[which.step]);
      for (std::size_t i = before; i < running.size(); ++i) ASSERT_TRUE(ever.insert(running[i]).second);
    }
    EXPECT_TRUE(frontier.finished());
    EXPECT_EQ(ever.size(), 6 * schedule.steps().size());
  }
}

TEST(Frontier, RunsAnyNumberOfIterations) {
  const Workload workload = two_layers();
  const Schedule schedule = make_dear(workload, group(workload, PerLayer{}));
  constexpr std::int64_t kIterations = 20'000;
  Frontier frontier(schedule.graph());  // without end
  std::vector<Instance> running = frontier.start();
  while (frontier.done(schedule.commit()) < kIterations) {
    ASSERT_FALSE(running.empty());
    const StepId step = running.back().step;
    running.pop_back();
    frontier.complete(step, running);
  }
  EXPECT_FALSE(frontier.finished());
  EXPECT_LE(frontier.started(schedule.commit()), kIterations + 1);
}

TEST(Frontier, NoIterationsAreFinishedAtOnce) {
  const Workload workload = two_layers();
  Frontier frontier(make_wfbp(workload, group(workload, PerLayer{})).graph(), {.iterations = 0});
  EXPECT_TRUE(frontier.start().empty());
  EXPECT_TRUE(frontier.finished());
}

TEST(Frontier, RefusesEndsOfWhatIsNotRunning) {
  const Workload workload = two_layers();
  const Schedule schedule = make_serial(workload, group(workload, PerLayer{}));
  Frontier frontier(schedule.graph());
  EXPECT_THROW(frontier.complete(schedule.forward_of(0)), ScheduleError) << "nothing was started";
  ASSERT_EQ(frontier.start().size(), 1U);
  EXPECT_TRUE(frontier.start().empty());
  EXPECT_THROW(frontier.complete(schedule.commit()), ScheduleError);
  EXPECT_THROW(frontier.complete(static_cast<StepId>(schedule.steps().size())), ScheduleError);
  EXPECT_EQ(frontier.complete(schedule.forward_of(0)), (std::vector<Instance>{{schedule.forward_of(1), 0}}));
  EXPECT_THROW(frontier.complete(schedule.forward_of(0)), ScheduleError) << "it has ended already";
}

}  // namespace
}  // namespace dear::frontier_test
