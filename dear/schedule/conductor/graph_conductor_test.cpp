#include "dear/schedule/conductor/graph_conductor.h"

#include <future>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/conductor/serial_lane.h"

namespace dear::conductor::graph_conductor_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two steps of the program, each followed by one that is issued; the program's third waits for both.
struct TwoSends {
  TwoSends(Rhythm rhythm = {}) {
    program = graph.add_lane();
    network = graph.add_lane();
    first = graph.add_step(program, rhythm);
    second = graph.add_step(program);
    of_first = graph.add_step(network, rhythm);
    of_second = graph.add_step(network);
    last = graph.add_step(program);
    graph.add_edge({first, of_first});
    graph.add_edge({second, of_second});
    graph.add_edge({of_first, last});
    graph.add_edge({of_second, last});
  }
  Graph graph;
  LaneId program, network;
  StepId first, second, of_first, of_second, last;
};

StepEnd end_of(Instance which) { return {.span = {which, 1, 2}}; }

constexpr auto kUnderWay = Started::under_way;

GraphConductor::Start starting(std::vector<Instance>& started) {
  return [&](Instance which) {
    started.push_back(which);
    return kUnderWay;
  };
}
Started nothing(Instance /*which*/) { return kUnderWay; }

TEST(GraphConductor, StartsInTheOrderOfTheLane) {
  const TwoSends of;
  std::vector<Instance> started;
  GraphConductor conductor(of.graph, {of.network}, starting(started), {});
  conductor.done(of.second);  // the program's order is its own
  EXPECT_TRUE(started.empty());
  conductor.done(of.first);
  EXPECT_THAT(started, ElementsAre(Instance{of.of_first, 0}, Instance{of.of_second, 0}));
  conductor.ended(end_of(started[0]));
  conductor.ended(end_of(started[1]));
  conductor.run(of.last, [] {});
  conductor.await_done(of.last, 0);
  conductor.drain();
}

// A start may run code of the user, which may wait for a thread that reports an end or asks for a failure.
TEST(GraphConductor, StartsWithoutALockAndInOrderWhoeverReports) {
  const TwoSends of;
  std::vector<Instance> started;
  GraphConductor* target = nullptr;
  GraphConductor conductor(of.graph, {of.network},
                           [&](Instance which) {
                             started.push_back(which);
                             if (which.step != of.of_first) return Started::done;
                             std::thread([&] {
                               EXPECT_FALSE(target->failure());
                               target->ended(end_of(which));
                               EXPECT_EQ(started.size(), 1U);  // one thread starts at a time
                             }).join();
                             return kUnderWay;
                           },
                           {});
  target = &conductor;
  conductor.done(of.second);
  conductor.done(of.first);
  EXPECT_THAT(started, ElementsAre(Instance{of.of_first, 0}, Instance{of.of_second, 0}));
  conductor.run(of.last, [] {});
  conductor.drain();
}

TEST(GraphConductor, OfStepsThatMayStartTheFirstLanesStartsFirst) {
  Graph graph;
  const LaneId program = graph.add_lane(), updates = graph.add_lane(), network = graph.add_lane();
  const StepId commit = graph.add_step(program);
  std::vector<StepId> order;
  for (int bucket = 0; bucket < 2; ++bucket) {
    const StepId update = graph.add_step(updates), gather = graph.add_step(network);
    graph.add_edge({commit, update});
    graph.add_edge({update, gather});
    order.insert(order.end(), {update, gather});
  }
  std::vector<StepId> started;
  GraphConductor conductor(graph, {network, updates},
                           [&](Instance which) {
                             started.push_back(which.step);
                             return Started::done;
                           },
                           {});
  conductor.done(commit);
  EXPECT_EQ(started, order);  // an update, its gather, the next update
}

TEST(GraphConductor, StepsThatRestAreNotStarted) {
  const TwoSends of({.period = 3, .first = 1});
  std::vector<Instance> started;
  GraphConductor conductor(of.graph, {of.network}, starting(started), {});
  for (std::int64_t iteration = 0; iteration < 6; ++iteration) {
    const bool rests = iteration % 3 != 1;
    started.clear();
    if (!rests) conductor.done(of.first);
    conductor.done(of.second);
    if (rests)
      EXPECT_THAT(started, ElementsAre(Instance{of.of_second, iteration}));
    else
      EXPECT_THAT(started, ElementsAre(Instance{of.of_first, iteration}, Instance{of.of_second, iteration}));
    for (const Instance& which : started) conductor.ended(end_of(which));
    conductor.run(of.last, [] {});
    conductor.await_done(of.of_first, iteration);
  }
  conductor.drain();
}

TEST(GraphConductor, AFailureIsThrownByEveryCallAndStartsNothing) {
  const TwoSends of;
  std::vector<Instance> started;
  GraphConductor conductor(of.graph, {of.network}, starting(started), {});
  conductor.done(of.first);
  conductor.ended({.span = {started[0], 0, 0}, .error = std::make_exception_ptr(TransportError("lost"))});
  EXPECT_THROW(conductor.throw_if_failed(), TransportError);
  EXPECT_THROW(conductor.done(of.second), TransportError);
  EXPECT_THROW(conductor.await(of.last), TransportError);
  EXPECT_EQ(started.size(), 1U);
  conductor.drain();
}

TEST(GraphConductor, WhatStartThrowsIsAFailure) {
  const TwoSends of;
  GraphConductor conductor(of.graph, {of.network}, [](Instance) -> Started { throw TransportError("full"); },
                           {});
  EXPECT_THROW(conductor.done(of.first), TransportError);
  EXPECT_THROW(conductor.throw_if_failed(), TransportError);
  conductor.drain();
}

TEST(GraphConductor, AWaitEndsAfterItsTimeoutAndNamesTheStep) {
  const TwoSends of;
  GraphConductor conductor(of.graph, {of.network}, nothing,
                           {.rank = 3, .timeout = std::chrono::milliseconds(5), .name = [](StepId step) {
                              return "number " + std::to_string(step);
                            }});
  try {
    conductor.await(of.last);
    FAIL();
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 3"));
    EXPECT_THAT(error.what(), HasSubstr("number " + std::to_string(of.last)));
  }
}

TEST(GraphConductor, RefusesWhatCannotBe) {
  TwoSends of;
  GraphConductor conductor(of.graph, {of.network}, nothing, {});
  EXPECT_THROW(conductor.done(of.of_first), ScheduleError);  // not the program's
  EXPECT_THROW(conductor.done(of.last), ScheduleError);      // not yet
  of.graph.add_edge({of.last, of.first});
  EXPECT_THROW(GraphConductor(of.graph, {of.network}, nothing, {}), ScheduleError);
}

// Random layers of work, in random orders, ended by another thread: each step runs once an iteration, after
// all that it waits for.
TEST(GraphConductor, KeepsEveryEdgeWhateverTheProgramsOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    Graph graph;
    const LaneId program = graph.add_lane(), network = graph.add_lane();
    std::vector<StepId> own, sent;
    for (int i = 0; i < 6; ++i) own.push_back(graph.add_step(program));
    for (const StepId step : own) {
      sent.push_back(graph.add_step(network));
      graph.add_edge({step, sent.back()});
      graph.add_edge({sent.back(), step, 1});
    }
    SerialLane wire;
    GraphConductor* target = nullptr;
    GraphConductor conductor(graph, {network},
                             [&](Instance which) {
                               wire.post([&, which] { target->ended(end_of(which)); });
                               return kUnderWay;
                             },
                             {.record = true});
    target = &conductor;
    constexpr std::int64_t kIterations = 5;
    for (std::int64_t iteration = 0; iteration < kIterations; ++iteration) {
      std::shuffle(own.begin(), own.end(), random);
      for (const StepId step : own) conductor.run(step, [] {});
    }
    for (const StepId step : sent) conductor.await_done(step, kIterations - 1);
    for (const StepSpan& wait : conductor.waits()) EXPECT_LE(wait.begin_seconds, wait.end_seconds);
    std::vector<StepId> order;
    for (const StepSpan& span : conductor.spans())
      if (std::find(sent.begin(), sent.end(), span.which.step) != sent.end())
        order.push_back(span.which.step);
    ASSERT_EQ(order.size(), sent.size() * kIterations);
    for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], sent[i % sent.size()]);
    conductor.drain();
  }
}

}  // namespace
}  // namespace dear::conductor::graph_conductor_test
