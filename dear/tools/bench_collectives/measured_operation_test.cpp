#include "dear/tools/bench_collectives/measured_operation.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::bench_collectives::measured_operation_test {
namespace {

using enum MeasuredOperation;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(MeasuredOperations, AreFoundByName) {
  for (const MeasuredOperation operation : measured_operations()) {
    EXPECT_EQ(parse_measured_operation(name_of(operation)), operation);
  }
  EXPECT_EQ(name_of(pair), "reduce-scatter+all-gather");
  EXPECT_EQ(name_of(barrier), "barrier");
  EXPECT_THAT(
      [] { parse_measured_operation("gather"); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("'gather'"), HasSubstr("reduce-scatter+all-gather, "))));
}

// doc/PERFORMANCE.md of nccl-tests; of the vector as a whole, where it counts a rank's part, the same.
TEST(BusFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(pair, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(all_to_all_v, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(barrier, 4), 0);
  EXPECT_DOUBLE_EQ(bus_factor(all_reduce, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(all_reduce, 1), 0);
}

TEST(BusFactor, OfThePairIsThatOfItsHalves) {
  for (int ranks = 1; ranks < 10; ++ranks) {
    EXPECT_DOUBLE_EQ(bus_factor(pair, ranks),
                     bus_factor(reduce_scatter, ranks) + bus_factor(all_gather, ranks));
  }
}

}  // namespace
}  // namespace dear::bench_collectives::measured_operation_test
