#include "dear/methods/moe/passes.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/moe/stack_in_test.h"

namespace dear::methods::moe::passes_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// As the reference has it: autograd takes the gradient of a weight first, but experts send theirs of the
// input on at once; a part is 6 % slower, and a launch takes 0.03.
Times times_of(const char* passes, double all_to_all, bool gate_may_be_cut = true) {
  const Stack stack({.all_to_all = all_to_all, .gate_may_be_cut = gate_may_be_cut});
  return run(stack.graph(), find_passes(passes), equal_parts(0.06, 0.03)).times;
}

// Another program, of the same unit costs, had these: how many times as fast as unoptimised and as experts
// alone, and what is left of the exposed communication of the latter.
struct Row {
  double all_to_all, dw, partition, both, both_of_experts, ranked, ranked_of_experts, exposed;
};
class Shape : public ::testing::TestWithParam<Row> {};

TEST_P(Shape, IsThatOfTheReference) {
  const Row& row = GetParam();
  const auto seconds = [&](const char* passes, bool cut = true) {
    return times_of(passes, row.all_to_all, cut).iteration_seconds;
  };
  const double base = seconds("unoptimised"), experts = seconds("experts");
  EXPECT_NEAR(base / seconds("dw"), row.dw, 0.03);
  EXPECT_NEAR(base / seconds("partition"), row.partition, 0.03);
  EXPECT_NEAR(base / seconds("lancet"), row.both, 0.03);
  EXPECT_NEAR(experts / seconds("lancet"), row.both_of_experts, 0.07);
  EXPECT_NEAR(base / seconds("lancet", false), row.ranked, 0.03);
  EXPECT_NEAR(experts / seconds("lancet", false), row.ranked_of_experts, 0.07);
  const double exposed = times_of("lancet", row.all_to_all).exposed_seconds;
  EXPECT_NEAR(exposed / times_of("experts", row.all_to_all).exposed_seconds, row.exposed, 0.08);
}
INSTANTIATE_TEST_SUITE_P(Ratios, Shape,
                         ::testing::Values(Row{1.0, 1.08, 1.10, 1.19, 1.07, 1.16, 1.05, 0.01},
                                           Row{1.5, 1.13, 1.13, 1.30, 1.20, 1.24, 1.14, 0.03},
                                           Row{2.5, 1.13, 1.15, 1.32, 1.25, 1.26, 1.19, 0.28}));

TEST(Passes, AreBetterTogetherThanAlone) {
  for (const double ratio : {1.5, 2.5}) {
    const double none = times_of("unoptimised", ratio).iteration_seconds;
    const double both = times_of("lancet", ratio).iteration_seconds;
    for (const char* alone : {"dw", "partition"}) {
      EXPECT_LT(times_of(alone, ratio).iteration_seconds, none) << alone << ratio;
      EXPECT_GT(times_of(alone, ratio).iteration_seconds, both) << alone << ratio;
    }
    EXPECT_LE(both, times_of("lancet", ratio, false).iteration_seconds);
  }
  EXPECT_LE(times_of("lancet", 2.5).exposed_seconds, 0.4 * times_of("experts", 2.5).exposed_seconds);
}

// The order is checked where a graph is made; here: nothing is lost, and all ranks plan alike.
TEST(Passes, KeepEveryInstructionAndEveryWait) {
  const InstructionGraph graph = Stack({.all_to_all = 1.5, .reductions = true}).graph();
  for (const Passes& passes : all_passes()) {
    const Passed passed = run(graph, passes, equal_parts(0.06, 0.03), {.iterations = 3});
    EXPECT_EQ(passed.graph.digest(),
              run(graph, passes, equal_parts(0.06, 0.03), {.iterations = 3}).graph.digest());
    double parts = 0;
    for (const Instruction& instruction : passed.graph.instructions()) parts += 1.0 / instruction.parts;
    EXPECT_NEAR(parts, static_cast<double>(graph.size()), 1e-9);
    EXPECT_NEAR(passed.times.compute_seconds, play(passed.graph, 2).compute_seconds, 1e-9);
  }
}

// Two ranks with two lanes each: a lane is a list whose first instruction goes when all that it waits for is
// done, an all-to-all when it is the first of the network lane on both. Nobody may be stuck, whichever rank
// goes first.
TEST(Passes, LeaveNobodyWaitingForEver) {
  for (const Passes& passes : all_passes()) {
    const InstructionGraph graph = run(Stack({.layers = 4, .all_to_all = 1.5, .reductions = true}).graph(),
                                       passes, equal_parts(0.06, 0.03))
                                       .graph;
    std::vector<InstructionId> lanes[2];
    for (const InstructionId id : graph.order()) lanes[communicates(graph[id].kind) ? 1 : 0].push_back(id);
    for (const std::size_t eager : {0U, 1U}) {
      std::size_t next[2][2] = {{0, 0}, {0, 0}};  // by rank, then lane
      std::vector<bool> done[2] = {std::vector<bool>(graph.size()), std::vector<bool>(graph.size())};
      const auto ready = [&](std::size_t rank, std::size_t lane) {
        if (next[rank][lane] == lanes[lane].size()) return false;
        const std::vector<InstructionId>& before = graph.predecessors(lanes[lane][next[rank][lane]]);
        return std::all_of(before.begin(), before.end(), [&](InstructionId id) { return done[rank][id]; });
      };
      for (bool moved = true; moved;) {
        moved = false;
        for (const std::size_t rank : {eager, 1 - eager})
          while (ready(rank, 0)) {
            done[rank][lanes[0][next[rank][0]++]] = true;
            moved = true;
          }
        while (ready(0, 1) && ready(1, 1) && next[0][1] == next[1][1]) {
          for (const std::size_t rank : {0U, 1U}) done[rank][lanes[1][next[rank][1]++]] = true;
          moved = true;
        }
      }
      for (const std::size_t rank : {0U, 1U})
        EXPECT_EQ(next[rank][0] + next[rank][1], graph.size()) << passes.name;
    }
  }
}

TEST(Passes, LeaveAGraphWithoutAllToAllsAlone) {
  const InstructionGraph graph(
      {{.name = "tokens", .shape = {8, 4}}, {.name = "y", .shape = {8, 4}}},
      {{.name = "forward", .seconds = 1, .reads = {0}, .writes = {1}, .cuts = cuts_along({0}, 1, 1)},
       {.name = "dX", .seconds = 1, .after = {0}, .pass = Pass::backward},
       {.name = "dW", .kind = Kind::weight_gradient, .seconds = 1, .after = {0}, .pass = Pass::backward}});
  for (const Passes& passes : all_passes()) {
    const Passed passed = run(graph, passes, equal_parts(0.06, 0.03));
    EXPECT_EQ(passed.graph.digest(), graph.digest()) << passes.name;
    EXPECT_EQ(passed.graph.order(), graph.order());
    EXPECT_TRUE(passed.ranges.empty());
  }
}

TEST(Passes, AreFoundByName) {
  EXPECT_THAT([] { (void)find_passes("lancets"); },
              ThrowsMessage<ConfigError>(HasSubstr("there are no passes 'lancets', did you mean lancet?")));
  EXPECT_THROW(
      (void)run(Stack({}).graph(), {.name = "x", .partition = true, .experts = true}, equal_parts(0, 0)),
      ConfigError);
}

}  // namespace
}  // namespace dear::methods::moe::passes_test
