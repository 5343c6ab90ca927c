#include "dear/schedule/graph/graph.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/graph/critical_cycle.h"
#include "dear/schedule/graph/frontier.h"

namespace dear::graph_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string number(StepId step) { return "step " + std::to_string(step); }

std::size_t below(std::mt19937_64& random, std::size_t limit) { return random() % limit; }

// A graph of a few steps on one to three lanes, some of which rest, that can run.
Graph random_graph(std::mt19937_64& random, std::uint32_t longest_period) {
  for (;;) {
    Graph graph;
    const std::size_t lanes = 1 + below(random, 3), steps = 2 + below(random, 5);
    for (std::size_t i = 0; i < lanes; ++i) (void)graph.add_lane();
    for (std::size_t i = 0; i < steps; ++i) {
      const auto period = static_cast<std::uint32_t>(1 + below(random, longest_period));
      (void)graph.add_step(static_cast<LaneId>(below(random, lanes)),
                           {.period = period, .first = static_cast<std::uint32_t>(below(random, period))});
    }
    for (std::size_t i = below(random, 2 * steps); i > 0; --i)
      graph.add_edge({static_cast<StepId>(below(random, steps)), static_cast<StepId>(below(random, steps)),
                      static_cast<std::uint32_t>(below(random, 3))});
    if (flaw_of(graph, number).empty()) return graph;
  }
}

TEST(Graph, KeepsStepsOnLanes) {
  Graph graph;
  const LaneId first = graph.add_lane(), second = graph.add_lane();
  const StepId a = graph.add_step(first), b = graph.add_step(second), c = graph.add_step(first);
  graph.add_edge({a, b, 0});
  EXPECT_THAT(graph.steps_of(first), ElementsAre(a, c));
  EXPECT_EQ(graph.lane_of(b), second);
  EXPECT_THAT(edges_with_lanes(graph),
              ::testing::UnorderedElementsAre(Edge{a, b, 0}, Edge{a, c, 0}, Edge{c, a, 1}, Edge{b, b, 1}));
  EXPECT_THAT(edges_with_lanes(graph, {true, false}),
              ::testing::UnorderedElementsAre(Edge{a, b, 0}, Edge{a, a, 1}, Edge{c, c, 1}, Edge{b, b, 1}));
}

TEST(Graph, RefusesStepsThatStandNowhereOrNeverRun) {
  Graph graph;
  EXPECT_THROW(graph.add_step(0), ScheduleError);
  const LaneId lane = graph.add_lane();
  EXPECT_THROW(graph.add_step(lane, {.period = 0}), ScheduleError);
  EXPECT_THROW(graph.add_step(lane, {.period = 2, .first = 2}), ScheduleError);
  EXPECT_EQ(graph.step_count(), 0U);
}

TEST(Graph, SaysWhyItCannotRun) {
  Graph graph;
  const LaneId lane = graph.add_lane(), other = graph.add_lane();
  const StepId a = graph.add_step(lane), b = graph.add_step(lane), c = graph.add_step(other);
  EXPECT_EQ(flaw_of(graph, number), "");
  Graph unknown = graph;
  unknown.add_edge({a, 7, 0});
  EXPECT_THAT(flaw_of(unknown, number), HasSubstr("step 7"));
  Graph itself = graph;
  itself.add_edge({c, c, 0});
  EXPECT_THAT(flaw_of(itself, number), HasSubstr("step 2 waits for itself"));
  // The order of a lane counts: a, b, and back through the other lane.
  Graph cycle = graph;
  cycle.add_edge({b, c, 0});
  cycle.add_edge({c, a, 0});
  EXPECT_THAT(flaw_of(cycle, number), HasSubstr("cycle"));
}

TEST(Frontier, AStepThatRestsIsReleasedToNobody) {
  Graph graph;
  const LaneId lane = graph.add_lane(), other = graph.add_lane();
  const StepId a = graph.add_step(lane), rare = graph.add_step(other, {.period = 3, .first = 1});
  const StepId b = graph.add_step(lane);
  graph.add_edge({a, rare, 0});
  graph.add_edge({rare, b, 0});
  Frontier frontier(graph, {.iterations = 5});
  std::vector<Instance> order;
  std::vector<Instance> running = frontier.start();
  while (!running.empty()) {
    order.push_back(running.back());
    running.pop_back();
    frontier.complete(order.back().step, running);
  }
  EXPECT_TRUE(frontier.finished());
  EXPECT_THAT(order, ElementsAre(Instance{a, 0}, Instance{b, 0}, Instance{a, 1}, Instance{rare, 1},
                                 Instance{b, 1}, Instance{a, 2}, Instance{b, 2}, Instance{a, 3},
                                 Instance{b, 3}, Instance{a, 4}, Instance{rare, 4}, Instance{b, 4}));
}

// In every state that random orders of completions reach, exactly those steps run that may run by the
// definition of an edge and of a step that rests.
TEST(Frontier, ReleasesExactlyWhatMayRunWhereStepsRest) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random, 4);
    constexpr std::int64_t kIterations = 9;
    const std::vector<Edge> edges = edges_with_lanes(graph);
    std::vector<std::int64_t> done(graph.step_count());
    const auto may_start = [&](StepId step) {
      if (done[step] == kIterations) return false;
      // A step that rests waits for its lane alone.
      const auto first =
          static_cast<std::ptrdiff_t>(graph.rhythm_of(step).rests_in(done[step]) ? graph.edges().size() : 0);
      return std::all_of(edges.begin() + first, edges.end(), [&](const Edge& edge) {
        return edge.to != step || done[step] < edge.back || done[edge.from] > done[step] - edge.back;
      });
    };
    // Those that rest end as soon as they may.
    const auto settle = [&] {
      for (bool changed = true; changed;) {
        changed = false;
        for (StepId step = 0; step < done.size(); ++step)
          while (may_start(step) && graph.rhythm_of(step).rests_in(done[step])) {
            ++done[step];
            changed = true;
          }
      }
    };
    Frontier frontier(graph, {.iterations = kIterations});
    std::vector<Instance> running = frontier.start();
    for (;;) {
      settle();
      std::set<Instance> expected;
      for (StepId step = 0; step < done.size(); ++step) {
        ASSERT_EQ(frontier.done(step), done[step]);
        if (may_start(step)) expected.insert({step, done[step]});
      }
      ASSERT_EQ(std::set<Instance>(running.begin(), running.end()), expected);
      if (running.empty()) break;
      const std::size_t pick = below(random, running.size());
      const Instance which = running[pick];
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(pick));
      ++done[which.step];
      frontier.complete(which.step, running);
    }
    EXPECT_TRUE(frontier.finished());
  }
}

// What follows a step that rests waits for its last run, not for what that would wait for.
TEST(Frontier, AStepThatRestsDoesNotWaitForOtherLanes) {
  Graph graph;
  const LaneId lane = graph.add_lane(), other = graph.add_lane();
  const StepId slow = graph.add_step(other);
  const StepId rare = graph.add_step(lane, {.period = 2}), often = graph.add_step(lane);
  graph.add_edge({slow, rare});
  Frontier frontier(graph, {.iterations = 3});
  EXPECT_THAT(frontier.start(), ElementsAre(Instance{slow, 0}));
  EXPECT_THAT(frontier.complete(slow), ::testing::UnorderedElementsAre(Instance{slow, 1}, Instance{rare, 0}));
  EXPECT_THAT(frontier.complete(rare), ElementsAre(Instance{often, 0}));
  // Iteration 1 rests: `often` does not wait for slow 1. Iteration 2 waits for slow 2.
  EXPECT_THAT(frontier.complete(often), ElementsAre(Instance{often, 1}));
  EXPECT_TRUE(frontier.complete(often).empty());
  EXPECT_THAT(frontier.complete(slow), ElementsAre(Instance{slow, 2}));
  EXPECT_THAT(frontier.complete(slow), ElementsAre(Instance{rare, 2}));
}

TEST(Frontier, PassesALongChainOfStepsThatRest) {
  Graph graph;
  const LaneId lane = graph.add_lane();
  for (int i = 0; i < 100'000; ++i) (void)graph.add_step(lane, {.period = 2, .first = 1});
  const StepId last = graph.add_step(lane);
  Frontier frontier(graph);
  EXPECT_THAT(frontier.start(), ElementsAre(Instance{last, 0}));
}

// Seconds of an iteration in the long run, measured on the token game itself: every step starts when it may.
double measured(const Graph& graph, const std::vector<double>& seconds, std::int64_t iterations) {
  Frontier frontier(graph, {.iterations = iterations});
  std::set<std::pair<double, Instance>> ends;
  double now = 0, half = 0;
  const auto begin = [&](const std::vector<Instance>& released) {
    for (const Instance& which : released) ends.insert({now + seconds[which.step], which});
  };
  begin(frontier.start());
  while (!ends.empty()) {
    const auto [at, which] = *ends.begin();
    ends.erase(ends.begin());
    now = at;
    begin(frontier.complete(which.step));
    if (half == 0 && frontier.done(0) >= iterations / 2) half = now;
  }
  return (now - half) / (static_cast<double>(iterations) / 2);
}

TEST(CriticalCycle, IsTheRateOfTheGameWhereStepsRest) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Graph graph = random_graph(random, 3);
    // One cycle through all steps, so that none runs ahead of the others without end.
    for (StepId step = 1; step < graph.step_count(); ++step) {
      graph.add_edge({0, step, 1});
      graph.add_edge({step, 0, 2});
    }
    ASSERT_EQ(flaw_of(graph, number), "");
    std::vector<double> seconds;
    for (StepId step = 0; step < graph.step_count(); ++step)
      seconds.push_back(static_cast<double>(1 + below(random, 8)));
    constexpr std::int64_t kIterations = 1200;  // whole numbers of all periods
    const CriticalCycle cycle = critical_cycle(graph, seconds);
    EXPECT_NEAR(measured(graph, seconds, kIterations), cycle.seconds, 0.02 * cycle.seconds + 0.02);
    EXPECT_FALSE(cycle.steps.empty());
  }
}

TEST(CriticalCycle, OfRestingStepsByHand) {
  Graph graph;
  const LaneId lane = graph.add_lane();
  (void)graph.add_step(lane);
  (void)graph.add_step(lane, {.period = 10});
  EXPECT_DOUBLE_EQ(critical_cycle(graph, {1, 20}).seconds, 3);
  EXPECT_THROW(critical_cycle(graph, {1}), ScheduleError);
  for (const std::uint32_t prime : {997U, 991U, 983U}) (void)graph.add_step(lane, {.period = prime});
  EXPECT_THROW(critical_cycle(graph, {1, 1, 1, 1, 1}), ScheduleError);
}

}  // namespace
}  // namespace dear::graph_test
