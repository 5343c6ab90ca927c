#include "dear/methods/moe/instructions.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/moe/two_lanes.h"

namespace dear::methods::moe::instructions_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Instructions = std::vector<Instruction>;

Instruction make(std::string name, Kind kind, double seconds, std::vector<InstructionId> after = {}) {
  return {.name = std::move(name), .kind = kind, .seconds = seconds, .after = std::move(after)};
}

template <class TypeOfError>
void expect_refused(std::vector<Value> values, Instructions instructions, std::vector<InstructionId> order,
                    const std::string& message) {
  EXPECT_THAT([&] { InstructionGraph(values, instructions, order); },
              ThrowsMessage<TypeOfError>(HasSubstr(message)));
}

TEST(Instructions, AreRefusedWithOneSentence) {
  const Kind c = Kind::compute;
  expect_refused<ConfigError>({}, {make("x", c, -1)}, {}, "instruction 'x' takes -1 s, which is no time");
  expect_refused<ConfigError>({}, {make("x", c, std::numeric_limits<double>::quiet_NaN())}, {}, "measure it");
  expect_refused<ScheduleError>({}, {make("x", c, 1, {1})}, {},
                                "instruction 'x' names instruction 1, but there are 1");
  expect_refused<ScheduleError>({}, {make("x", c, 1, {1}), make("y", c, 1, {0})}, {},
                                "in a circle, 'y' -> 'x'");
  expect_refused<ScheduleError>({}, {make("x", c, 1, {0})}, {}, "in a circle, 'x'");
  expect_refused<ScheduleError>({}, {make("x", c, 1), make("y", c, 1, {0})}, {1, 0},
                                "has instruction 'y' before 'x', which it waits for");
  expect_refused<ScheduleError>({}, {make("x", c, 1), make("y", c, 1)}, {0, 0}, "has instruction 'x' twice");
  expect_refused<ScheduleError>({}, {make("x", c, 1), make("y", c, 1)}, {0}, "has 1 of 2 instructions");
  expect_refused<ScheduleError>({}, {make("x", c, 1)}, {3}, "names instruction 3");
  const std::vector<Value> values{{.name = "v", .shape = {4, 8}}};
  expect_refused<ScheduleError>(values, {{.name = "x", .reads = {1}}}, {}, "names value 1");
  expect_refused<ScheduleError>(values, {{.name = "x", .writes = {0}}, {.name = "y", .writes = {0}}}, {},
                                "value 'v' is written by 'x' and 'y'");
  const std::vector<std::vector<Axis>> misfits{{}, {2}, {kWhole}, {0, 0}, {-3}};
  for (const std::vector<Axis>& writes : misfits)
    expect_refused<ScheduleError>(values,
                                  {{.name = "x", .writes = {0}, .cuts = {{.reads = {}, .writes = writes}}}},
                                  {}, "a cut of instruction 'x' does not fit its values");
}

TEST(Instructions, WaitForTheWritersOfWhatTheyRead) {
  const InstructionGraph graph(
      {{.name = "v", .shape = {2}}, {.name = "given", .shape = {2}}},
      {{.name = "a", .writes = {0}}, {.name = "b"}, {.name = "c", .after = {0, 1}, .reads = {0, 1}}});
  EXPECT_THAT(graph.predecessors(2), ElementsAre(0, 1));
  EXPECT_THAT(reached_from(graph, 0), ElementsAre(true, false, true));
  EXPECT_THAT(leading_to(graph, 2), ElementsAre(true, true, true));
}

TEST(Instructions, KeepAWantedOrderAsFarAsTheyCan) {
  const InstructionGraph graph(Instructions{make("a", Kind::compute, 1), make("b", Kind::compute, 1, {0}),
                                            make("c", Kind::compute, 1, {1}), make("d", Kind::compute, 1)});
  EXPECT_THAT(graph.reordered({3, 0, 1, 2}).order(), ElementsAre(3, 0, 1, 2));
  EXPECT_THAT(graph.reordered({2, 1, 3, 0}).order(), ElementsAre(3, 0, 1, 2));
  EXPECT_THROW((void)graph.reordered({0, 1, 2}), ScheduleError);
  EXPECT_THROW((void)graph.reordered({0, 1, 2, 2}), ScheduleError);
  EXPECT_THROW((void)graph.reordered({0, 1, 2, 9}), ScheduleError);
}

TEST(Instructions, HaveOneDigestForOneOrder) {
  Instructions instructions{make("a", Kind::compute, 1), make("b", Kind::all_to_all, 2),
                            make("c", Kind::compute, 1)};
  const InstructionGraph graph(instructions);
  EXPECT_NE(graph.digest(), graph.reordered({1, 0, 2}).digest());
  EXPECT_EQ(graph.digest(), graph.reordered({0, 1, 2}).digest());
  instructions[2].seconds = 9;  // each rank measures its own
  EXPECT_EQ(graph.digest(), InstructionGraph(instructions).digest());
  instructions[2].after = {1};
  EXPECT_NE(graph.digest(), InstructionGraph(instructions).digest());
  instructions[2].after = {};
  instructions[2].after_previous = {1};
  EXPECT_NE(graph.digest(), InstructionGraph(instructions).digest());
}

// By the pencil: a 0-1, all-to-all 1-3, b 1-2 beside it, c 3-4; exposed is 2-3.
TEST(TwoLanes, RunBesideEachOther) {
  const InstructionGraph graph(
      Instructions{make("a", Kind::compute, 1), make("all-to-all", Kind::all_to_all, 2, {0}),
                   make("b", Kind::compute, 1, {0}), make("c", Kind::compute, 1, {1})});
  const Times times = play(graph);
  EXPECT_DOUBLE_EQ(times.iteration_seconds, 4);
  EXPECT_DOUBLE_EQ(times.compute_seconds, 3);
  EXPECT_DOUBLE_EQ(times.network_seconds, 2);
  EXPECT_DOUBLE_EQ(times.exposed_seconds, 1);
  EXPECT_DOUBLE_EQ(times.all_to_all_seconds, 2);
  EXPECT_DOUBLE_EQ(times.exposed_all_to_all_seconds, 1);
  const Trace trace = to_trace(graph, times, "title", "modelled");
  ASSERT_EQ(trace.spans.size(), 4U);
  EXPECT_EQ(trace.spans[1].lane + " " + trace.spans[1].name, "compute b");
  EXPECT_THROW((void)play(graph, 0), ConfigError);
}

// An all-gather of 2 that the next forward waits for: 1 of it is hidden under the first layer.
TEST(TwoLanes, CountAnIterationAmongOthers) {
  Instructions instructions{make("first", Kind::compute, 1), make("second", Kind::compute, 3),
                            make("gather", Kind::all_gather, 2, {1})};
  instructions[1].after_previous = {2};
  const InstructionGraph graph(instructions);
  EXPECT_DOUBLE_EQ(play(graph, 1).iteration_seconds, 6);
  const Times times = play(graph, 5);
  EXPECT_DOUBLE_EQ(times.iteration_seconds, 5);
  EXPECT_DOUBLE_EQ(times.compute_seconds, 4);
  EXPECT_DOUBLE_EQ(times.exposed_seconds, 1);
  EXPECT_DOUBLE_EQ(times.all_to_all_seconds, 0);
  EXPECT_DOUBLE_EQ(times.exposed_all_to_all_seconds, 0);
}

// start = max(end of what it waits for, end of the one before on its lane), and what is exposed summed up in
// steps of one second.
TEST(TwoLanes, AgreeWithARecurrenceOnRandomGraphs) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    Instructions instructions;
    const std::uint32_t count = 1 + random() % 14;
    for (InstructionId id = 0; id < count; ++id) {
      std::vector<InstructionId> after;
      for (InstructionId before = 0; before < id; ++before)
        if (random() % 4 == 0) after.push_back(before);
      const Kind kinds[] = {Kind::compute, Kind::compute, Kind::all_to_all, Kind::all_gather};
      instructions.push_back(
          make(fmt::format("{}", id), kinds[random() % 4], static_cast<double>(random() % 4), after));
    }
    std::vector<int> end(instructions.size());
    int lane_end[2] = {0, 0}, last = 0;
    std::vector<bool> busy[2] = {std::vector<bool>(64), std::vector<bool>(64)}, exchanging(64);
    for (std::size_t id = 0; id < instructions.size(); ++id) {
      const std::size_t lane = communicates(instructions[id].kind) ? 1 : 0;
      int start = lane_end[lane];
      for (const InstructionId before : instructions[id].after) start = std::max(start, end[before]);
      end[id] = lane_end[lane] = start + static_cast<int>(instructions[id].seconds);
      for (std::size_t at = index_of(start); at < index_of(end[id]); ++at) {
        busy[lane][at] = true;
        exchanging[at] = exchanging[at] || instructions[id].kind == Kind::all_to_all;
      }
      last = std::max(last, end[id]);
    }
    int exposed = 0, exchanged = 0, exchanged_exposed = 0;
    for (std::size_t at = 0; at < 64; ++at) {
      exposed += busy[1][at] && !busy[0][at] ? 1 : 0;
      exchanged += exchanging[at] ? 1 : 0;
      exchanged_exposed += exchanging[at] && !busy[0][at] ? 1 : 0;
    }
    const Times times = play(InstructionGraph(instructions));
    EXPECT_DOUBLE_EQ(times.iteration_seconds, last);
    EXPECT_DOUBLE_EQ(times.exposed_seconds, exposed);
    EXPECT_DOUBLE_EQ(times.all_to_all_seconds, exchanged);
    EXPECT_DOUBLE_EQ(times.exposed_all_to_all_seconds, exchanged_exposed);
  }
}

TEST(TwoLanes, TakeNoTimeForNothing) {
  EXPECT_EQ(play(InstructionGraph(Instructions{})).iteration_seconds, 0);
  EXPECT_EQ(
      play(InstructionGraph(Instructions{make("a", Kind::compute, 0), make("b", Kind::all_to_all, 0, {0})}))
          .iteration_seconds,
      0);
}

}  // namespace
}  // namespace dear::methods::moe::instructions_test
