#include "dear/methods/moe/dense_gradients.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dear/methods/moe/stack_in_test.h"
#include "dear/methods/moe/two_lanes.h"

namespace dear::methods::moe::dense_gradients_test {
namespace {

std::string network_order(const InstructionGraph& graph) {
  std::string names;
  for (const InstructionId id : graph.order())
    if (communicates(graph[id].kind)) names += graph[id].name + " ";
  return names;
}

Instruction make(std::string name, Kind kind, double seconds, std::vector<InstructionId> after = {}) {
  return {.name = std::move(name),
          .kind = kind,
          .seconds = seconds,
          .after = std::move(after),
          .pass = Pass::backward};
}

// By the pencil: all-to-alls a 1-4, b 5-8, c 11-14. Between b and c are 3 seconds, of which r2 and r1 take
// all; r4 would delay c; r0.5 is ready at 1 and fits between a and b.
TEST(Reductions, FillWhatAllToAllsLeave) {
  const InstructionGraph graph(std::vector<Instruction>{
      make("x", Kind::compute, 1), make("r4", Kind::reduce_scatter, 4, {0}),
      make("r2", Kind::all_reduce, 2, {0}), make("a", Kind::all_to_all, 3, {0}),
      make("y", Kind::compute, 1, {3}), make("b", Kind::all_to_all, 3, {4}),
      make("r0.5", Kind::reduce_scatter, 0.5, {0}), make("r1", Kind::reduce_scatter, 1, {4}),
      make("z", Kind::compute, 3, {5}), make("c", Kind::all_to_all, 3, {8}),
      make("update", Kind::update, 1, {1, 2, 6, 7})});
  const InstructionGraph placed = place_dense(graph);
  EXPECT_EQ(network_order(placed), "a r0.5 b r2 r1 c r4 ");
  EXPECT_DOUBLE_EQ(play(placed).iteration_seconds, 14 + 4 + 1);
  EXPECT_DOUBLE_EQ(play(graph).iteration_seconds, 1 + 4 + 2 + 3 + 1 + 3 + 3 + 3);
}

// The gather of the second layer does not fit before the all-to-all of the first one, but under it does
// nothing wait for it; that of the first layer is needed at once.
TEST(Gathers, MoveIntoTheNextForward) {
  std::vector<Instruction> instructions{{.name = "first", .seconds = 1},
                                        {.name = "a", .kind = Kind::all_to_all, .seconds = 2, .after = {0}},
                                        {.name = "middle", .seconds = 4, .after = {1}},
                                        {.name = "second", .seconds = 1, .after = {2}},
                                        make("reduce 1", Kind::reduce_scatter, 1, {3}),
                                        make("reduce 2", Kind::reduce_scatter, 3, {3}),
                                        make("update 1", Kind::update, 0, {4}),
                                        make("update 2", Kind::update, 0, {5}),
                                        make("gather 1", Kind::all_gather, 1, {6}),
                                        make("gather 2", Kind::all_gather, 3, {7})};
  instructions[0].after_previous = {8};
  instructions[3].after_previous = {9};
  const InstructionGraph graph(instructions);
  const InstructionGraph placed = place_dense(graph);
  EXPECT_EQ(network_order(placed), "gather 1 a gather 2 reduce 1 reduce 2 ");
  EXPECT_EQ(placed[8].after_previous, std::vector<InstructionId>{6});
  EXPECT_EQ(placed[3].after_previous, std::vector<InstructionId>{});
  EXPECT_LT(play(placed, 4).iteration_seconds, play(graph, 4).iteration_seconds);
}

TEST(DenseGradients, NeverDelayAnAllToAll) {
  for (const double all_to_all : {0.0, 0.5, 1.5, 2.5}) {
    const InstructionGraph plain = Stack({.all_to_all = all_to_all}).graph();
    const InstructionGraph placed =
        place_dense(Stack({.all_to_all = all_to_all, .reductions = true}).graph());
    // 0.1 s of reductions after the last weight gradient cannot be hidden.
    EXPECT_LE(play(placed, 6).iteration_seconds, play(plain, 6).iteration_seconds + 0.2 + 1e-9);
  }
}

TEST(DenseGradients, LeaveOthersInTheirOrder) {
  const InstructionGraph graph = Stack({}).graph();
  EXPECT_EQ(place_dense(graph).order(), graph.order());
}

}  // namespace
}  // namespace dear::methods::moe::dense_gradients_test
