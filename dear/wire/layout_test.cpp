#include "dear/wire/layout.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::wire::layout_test {
namespace {

Workload workload_of(const std::vector<std::int64_t>& elements) {
  Workload workload{.name = "test", .tensors = {}, .layers = {}};
  for (const std::int64_t n : elements) {
    const auto id = static_cast<TensorId>(workload.tensors.size());
    workload.tensors.push_back({"t" + std::to_string(id), n, DType::f32});
    workload.layers.push_back({"l" + std::to_string(id), {id}, 1, 2});
  }
  return workload;
}

TEST(Layout, StartsEveryTensorOnACacheLine) {
  const Workload workload = workload_of({1, 16, 17});
  const Bucket bucket{{0, 1, 2}, 34 * 4, DType::f32};
  const BucketLayout layout = lay_out(bucket, workload, {0, 0, 0});
  ASSERT_EQ(layout.placements.size(), 3U);
  EXPECT_EQ(layout.placements[0].offset, 0);
  EXPECT_EQ(layout.placements[1].offset, 16);
  EXPECT_EQ(layout.placements[2].offset, 32);
  EXPECT_EQ(layout.elements, 64);
  ASSERT_EQ(layout.runs.size(), 1U);
  EXPECT_EQ(layout.runs[0].range, (Range{0, 64}));
}

TEST(Layout, KeepsTensorsOfOneRuleTogether) {
  const Workload workload = workload_of({16, 16, 16, 16});
  const Bucket bucket{{0, 1, 2, 3}, 256, DType::f32};
  const BucketLayout layout = lay_out(bucket, workload, {1, 0, 1, 0});
  std::vector<TensorId> order;
  for (const TensorPlacement& placement : layout.placements) order.push_back(placement.tensor);
  EXPECT_THAT(order, ::testing::ElementsAre(1, 3, 0, 2));
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(layout.runs[0].parameter_group, 0U);
  EXPECT_EQ(layout.runs[0].range, (Range{0, 32}));
  EXPECT_EQ(layout.runs[1].parameter_group, 1U);
  EXPECT_EQ(layout.runs[1].range, (Range{32, 64}));
}

// However the bucket is cut, and whatever its padding.
TEST(Layout, PiecesPartitionTheBuffer) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> elements(1 + random() % 9);
    for (auto& n : elements) n = 1 + random() % 500;
    const Workload workload = workload_of(elements);
    Bucket bucket{{}, 0, DType::f32};
    for (TensorId id = 0; id < elements.size(); ++id) {
      bucket.tensors.push_back(id);
      bucket.bytes += elements[id] * 4;
    }
    const BucketLayout layout = lay_out(bucket, workload, std::vector<std::uint32_t>(elements.size(), 0));
    const std::int64_t chunk = 1 + random() % bucket.bytes;
    std::int64_t covered = 0;
    for (std::int64_t begin = 0; begin < bucket.bytes; begin += chunk) {
      const Range part =
          part_of({begin, std::min(begin + chunk, bucket.bytes)}, bucket.bytes, layout.elements, DType::f32);
      ASSERT_EQ(part.begin, covered);
      ASSERT_EQ(part.begin % 16, 0);
      ASSERT_LE(part.begin, part.end);
      ASSERT_LE(part.size() * 4, chunk * layout.bytes() / bucket.bytes + 128);
      covered = part.end;
    }
    ASSERT_EQ(covered, layout.elements);
    EXPECT_EQ(part_of(kWholeBucket, bucket.bytes, layout.elements, DType::f32), (Range{0, layout.elements}));
  }
}

TEST(Layout, ShardsPartitionTheRuns) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> elements(1 + random() % 9);
    for (auto& n : elements) n = 1 + random() % 500;
    const Workload workload = workload_of(elements);
    Bucket bucket{{}, 0, DType::f32};
    std::vector<std::uint32_t> groups;
    for (TensorId id = 0; id < elements.size(); ++id) {
      bucket.tensors.push_back(id);
      groups.push_back(random() % 3);
    }
    const BucketLayout layout = lay_out(bucket, workload, groups);
    const int ranks = 1 + static_cast<int>(random() % 8);
    std::int64_t covered = 0;
    std::int64_t next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const auto& run : runs_within(layout, shard_of(layout.elements, layout.dtype, ranks, rank))) {
        EXPECT_EQ(run.range.begin, next);
        EXPECT_EQ(run.range.begin % 16, 0);
        EXPECT_EQ(run.range.end % 16, 0);
        next = run.range.end;
        covered += run.range.size();
      }
    }
    EXPECT_EQ(covered, layout.elements);
  }
}

}  // namespace
}  // namespace dear::wire::layout_test
