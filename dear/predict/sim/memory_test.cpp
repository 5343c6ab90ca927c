#include "dear/predict/sim/memory.h"

#include <gtest/gtest.h>

namespace dear::sim::memory_test {
namespace {

// Bytes: buckets of 400, 800 and 40 (half precision), 1240 in all. With one state: 4 x (100 + 200) and, for
// the 20 elements that have a copy besides, 8 x 20; 1360.
Workload mixed() {
  return {.name = "mixed",
          .tensors = {{.name = "a", .elements = 100},
                      {.name = "b", .elements = 200},
                      {.name = "c", .elements = 20, .dtype = DType::bf16}},
          .layers = {{.name = "first", .tensors = {0}, .activation_bytes = 1000},
                     {.name = "second", .tensors = {1}, .activation_bytes = 500},
                     {.name = "third", .tensors = {2}}},
          .buffer_bytes = 7};
}

Memory memory_with(const Residence& residence, int ranks, int states = 1) {
  const Workload workload = mixed();
  return memory_of(workload, group(workload, PerLayer{}), residence, ranks, states);
}

TEST(Memory, OfAReplicaIsTheWhole) {
  const Memory memory = memory_with({}, 4);
  EXPECT_EQ(memory.parameters, 1240);
  EXPECT_EQ(memory.gradients, 1240);
  EXPECT_EQ(memory.optimizer, 1360);
  EXPECT_EQ(memory.activations, 1500);
  EXPECT_EQ(memory.buffers, 7);
  EXPECT_EQ(memory.total(), 1240 + 1240 + 1360 + 1500 + 7);
}

TEST(Memory, OfStatesByTheirNumber) {
  EXPECT_EQ(memory_with({}, 1, 0).optimizer, 4 * 20);
  EXPECT_EQ(memory_with({}, 1, 2).optimizer, 2 * 4 * 320 + 4 * 20);
}

// A tenth for each of ten ranks: 136 of the states; 124 of the gradients and one whole bucket, 800; 124 of
// the parameters and two buckets, 800 and 400.
TEST(Memory, OfShardsIsThePartAndWhatIsWholeForAWhile) {
  const Memory optimizer = memory_with({.optimizer_sharded = true}, 10);
  EXPECT_EQ(optimizer.optimizer, 136);
  EXPECT_EQ(optimizer.gradients, 1240);
  EXPECT_EQ(optimizer.parameters, 1240);
  const Memory gradients = memory_with({.optimizer_sharded = true, .gradients_sharded = true}, 10);
  EXPECT_EQ(gradients.optimizer, 136);
  EXPECT_EQ(gradients.gradients, 124 + 800);
  EXPECT_EQ(gradients.parameters, 1240);
  const Memory all =
      memory_with({.optimizer_sharded = true, .gradients_sharded = true, .parameters_sharded = true}, 100);
  EXPECT_EQ(all.optimizer, 14);  // 13.6
  EXPECT_EQ(all.gradients, 13 + 800);
  EXPECT_EQ(all.parameters, 13 + 800 + 400);
  EXPECT_EQ(all.activations, 1500);
}

TEST(Memory, OfShardsIsNeverMoreThanTheWhole) {
  const Residence all{.optimizer_sharded = true, .gradients_sharded = true, .parameters_sharded = true};
  for (const int ranks : {1, 2, 3}) {
    EXPECT_LE(memory_with(all, ranks).parameters, 1240);
    EXPECT_LE(memory_with(all, ranks).gradients, 1240);
    EXPECT_LE(memory_with(all, ranks).optimizer, 1360);
  }
  EXPECT_EQ(memory_with(all, 1).total(), memory_with({}, 1).total());
}

TEST(Memory, OfAJobWithoutParameters) {
  const Workload bare{.name = "bare", .tensors = {}, .layers = {{.name = "only", .tensors = {}}}};
  EXPECT_EQ(memory_of(bare, group(bare, PerLayer{}), {.parameters_sharded = true}, 4, 2).total(), 0);
}

}  // namespace
}  // namespace dear::sim::memory_test
