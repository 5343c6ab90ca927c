#include "dear/comm/mpi/choices.h"

#include <gtest/gtest.h>

namespace dear::backends::choices_test {
namespace {

TEST(Choices, SizesAreToldApartByPowersOfFour) {
  EXPECT_EQ(largest_of(0), 64);
  EXPECT_EQ(largest_of(kSizeClasses - 1), std::int64_t{64} << 20);
  EXPECT_EQ(size_class_of(0), 0);
  EXPECT_EQ(size_class_of(64), 0);
  EXPECT_EQ(size_class_of(65), 1);
  EXPECT_EQ(size_class_of(std::int64_t{1} << 40), kSizeClasses - 1);
}

Choices some() {
  Choices choices;
  choices.set(Collective::all_gather, 0, {.algorithm = "pairwise", .segment_bytes = 8192});
  choices.set(Collective::all_gather, 1, {.algorithm = "pairwise", .segment_bytes = 8192});
  choices.set(Collective::all_gather, 10, {.algorithm = kMpisOwn});
  choices.set(Collective::reduce_scatter, 3, {.algorithm = "ring", .segment_bytes = 65'536});
  return choices;
}

TEST(Choices, AreFoundByOperationAndSize) {
  const Choices choices = some();
  ASSERT_NE(choices.find(Collective::all_gather, 100), nullptr);
  EXPECT_EQ(choices.find(Collective::all_gather, 100)->algorithm, "pairwise");
  EXPECT_EQ(choices.find(Collective::all_gather, std::int64_t{1} << 30)->algorithm, kMpisOwn);
  EXPECT_EQ(choices.find(Collective::all_gather, 1000), nullptr);
  EXPECT_EQ(choices.find(Collective::broadcast, 100), nullptr);
}

TEST(Choices, AreSummedUpInRanges) {
  EXPECT_EQ(
      some().summary(),
      "reduce-scatter: ring in segments of 64 KiB up to 4 KiB; all-gather: pairwise in segments of 8 KiB up "
      "to 256 B, MPI's own");
}

}  // namespace
}  // namespace dear::backends::choices_test
