#include "dear/predict/tune/size_candidates.h"

#include <set>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/workload/layers/testing/workloads.h"

namespace dear::size_candidates_test {
namespace {

// Tensors of 1 KiB, one a layer.
Workload even(LayerId count) { return dear::testing::workload_of({.layers = count, .elements = 256}); }

TEST(SizeCandidates, AreDistinctFromOneALayerToAllInOne) {
  const Workload workload = even(8);
  const SizeCandidates sizes = size_candidates(workload, {.low_bytes = 512});
  ASSERT_EQ(sizes.candidates.size(), sizes.groupings.size());
  // Buckets of 1, 2, ..., 8 layers, of which 4 to 7 all give two of unlike sizes.
  ASSERT_EQ(sizes.groupings.size(), 8U);
  EXPECT_EQ(sizes.groupings.front().size(), 8U);
  EXPECT_EQ(sizes.groupings.back().size(), 1U);
  EXPECT_EQ(sizes.candidates.back().name, "all");
  for (std::size_t i = 0; i < sizes.groupings.size(); ++i) {
    const Grouping again = group(
        workload, BySize{.threshold_bytes = static_cast<std::int64_t>(sizes.candidates[i].values.front())});
    EXPECT_EQ(again.size(), sizes.groupings[i].size());
    EXPECT_EQ(again.buckets().front().tensors.size(), i + 1);
    if (i == 0) continue;
    EXPECT_GT(sizes.candidates[i].position[0], sizes.candidates[i - 1].position[0]);
  }
}

TEST(SizeCandidates, AModelSmallerThanTheRangeHasOne) {
  const SizeCandidates sizes = size_candidates(even(3));
  ASSERT_EQ(sizes.candidates.size(), 1U);
  EXPECT_EQ(sizes.groupings[0].size(), 1U);
}

TEST(SizeCandidates, AnotherGroupingStandsBesideThem) {
  const Workload workload = even(8);
  SizeCandidates sizes = size_candidates(workload, {.low_bytes = 512});
  EXPECT_EQ(add_grouping(sizes, "the same", group(workload, PerLayer{})), 0U);
  EXPECT_EQ(sizes.candidates.size(), 8U);
  const Grouping uneven(workload, {{.tensors = {0}}, {.tensors = {1, 2, 3, 4, 5, 6}}, {.tensors = {7}}});
  EXPECT_EQ(add_grouping(sizes, "uneven", uneven), 8U);
  EXPECT_EQ(sizes.candidates[8].name, "uneven");
  // That of three buckets is its neighbour.
  EXPECT_EQ(sizes.candidates[8].position[0], sizes.candidates[2].position[0]);
  EXPECT_EQ(candidate_of_size(sizes, 512), 0U);
  EXPECT_EQ(candidate_of_size(sizes, kGiB), 7U);
}

TEST(SizeCandidates, Refusals) {
  EXPECT_THROW(size_candidates({}), ConfigError);
  EXPECT_THROW(size_candidates(even(2), {.low_bytes = 0}), ConfigError);
  EXPECT_THROW(size_candidates(even(2), {.points = 0}), ConfigError);
}

}  // namespace
}  // namespace dear::size_candidates_test
