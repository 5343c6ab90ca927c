#include "dear/comm/buckets/layout.h"

#include <array>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/cache_line.h"

namespace dear::buckets::layout_test {
namespace {

Workload workload_of(const std::vector<std::int64_t>& elements, DType dtype = DType::f32) {
  Workload workload{.name = "test", .tensors = {}, .layers = {}};
  for (const std::int64_t n : elements) {
    const auto id = static_cast<TensorId>(workload.tensors.size());
    workload.tensors.push_back({"t" + std::to_string(id), n, dtype});
    workload.layers.push_back({"l" + std::to_string(id), {id}, 1, 2});
  }
  return workload;
}

// One bucket of a few tensors, of two parameter groups, as so many ranks train it.
struct AnyBucket {
  AnyBucket(std::mt19937& random, DType dtype, int ranks_) : ranks(ranks_), bucket{{}, 0, dtype} {
    std::vector<std::int64_t> elements(1 + random() % 9);
    for (auto& n : elements) n = 1 + random() % 500;
    std::vector<std::uint32_t> groups;
    for (TensorId id = 0; id < elements.size(); ++id) {
      bucket.tensors.push_back(id);
      bucket.bytes += elements[id] * size_of(dtype);
      groups.push_back(random() % 2);
    }
    layout = lay_out(bucket, workload_of(elements, dtype), groups, ranks);
  }
  [[nodiscard]] Range part(const Range& chunk) const {
    return part_of(chunk, bucket.bytes, layout.elements, layout.dtype, ranks);
  }
  int ranks;
  Bucket bucket;
  BucketLayout layout;
};

constexpr std::array kDTypes = {DType::f16, DType::bf16, DType::f32, DType::f64,
                                DType::i32, DType::i64,  DType::u8};

void for_any_bucket(const std::function<void(std::mt19937&, const AnyBucket&)>& check) {
  std::mt19937 random(8);
  for (const DType dtype : kDTypes) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      SCOPED_TRACE(std::string(name_of(dtype)) + ", " + std::to_string(ranks) + " ranks");
      for (int round = 0; round < 20; ++round) check(random, AnyBucket(random, dtype, ranks));
    }
  }
}

void expect_equal_shards(std::int64_t elements, DType dtype, int ranks) {
  for (int rank = 0; rank < ranks; ++rank)
    ASSERT_EQ(shard_of(elements, dtype, ranks, rank),
              (Range{elements / ranks * rank, elements / ranks * (rank + 1)}));
}

TEST(Layout, StartsEveryTensorOnACacheLine) {
  const Workload workload = workload_of({1, 16, 17});
  const Bucket bucket{{0, 1, 2}, 34 * 4, DType::f32};
  const BucketLayout layout = lay_out(bucket, workload, {0, 0, 0}, 1);
  ASSERT_EQ(layout.placements.size(), 3U);
  EXPECT_EQ(layout.placements[0].offset, 0);
  EXPECT_EQ(layout.placements[1].offset, 16);
  EXPECT_EQ(layout.placements[2].offset, 32);
  EXPECT_EQ(layout.elements, 64);
  ASSERT_EQ(layout.runs.size(), 1U);
  EXPECT_EQ(layout.runs[0].range, (Range{0, 64}));
}

// 64 elements, and 3 x 16 a shard of one line each: 96.
TEST(Layout, EndsInPaddingThatMakesShardsEqual) {
  const Workload workload = workload_of({16, 48});
  const BucketLayout layout = lay_out({{0, 1}, 64 * 4, DType::f32}, workload, {0, 1}, 3);
  EXPECT_EQ(layout.elements, 96);
  EXPECT_EQ(layout.placements[1].offset, 16);
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(layout.runs[1].range, (Range{16, 96}));
}

TEST(Layout, ShardsOfABucketAreEqual) {
  for_any_bucket([](std::mt19937&, const AnyBucket& any) {
    const BucketLayout& layout = any.layout;
    expect_equal_shards(layout.elements, layout.dtype, any.ranks);
    const TensorPlacement& last = layout.placements.back();
    ASSERT_LT(layout.elements - last.offset - last.elements,
              unit_of(layout.dtype, 1) + unit_of(layout.dtype, any.ranks));
  });
}

TEST(Layout, KeepsTensorsOfOneRuleTogether) {
  const Workload workload = workload_of({16, 16, 16, 16});
  const Bucket bucket{{0, 1, 2, 3}, 256, DType::f32};
  const BucketLayout layout = lay_out(bucket, workload, {1, 0, 1, 0}, 1);
  std::vector<TensorId> order;
  for (const TensorPlacement& placement : layout.placements) order.push_back(placement.tensor);
  EXPECT_THAT(order, ::testing::ElementsAre(1, 3, 0, 2));
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(layout.runs[0].parameter_group, 0U);
  EXPECT_EQ(layout.runs[0].range, (Range{0, 32}));
  EXPECT_EQ(layout.runs[1].parameter_group, 1U);
  EXPECT_EQ(layout.runs[1].range, (Range{32, 64}));
}

// 16 + 32 elements that travel encoded, padded to 2 x 16 x 2 elements; then the other two.
TEST(Layout, TensorsThatTravelEncodedComeFirst) {
  const Workload workload = workload_of({16, 16, 20, 16});
  const Bucket bucket{{0, 1, 2, 3}, 68 * 4, DType::f32};
  const BucketLayout layout = lay_out(bucket, workload, {0, 0, 0, 0}, 2, {false, true, true, false});
  std::vector<TensorId> order;
  for (const TensorPlacement& placement : layout.placements) order.push_back(placement.tensor);
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 0, 3));
  EXPECT_EQ(layout.encoded_elements, 64);
  EXPECT_EQ(layout.placements[2].offset, 64);
  EXPECT_EQ(layout.elements, 96);
  ASSERT_EQ(layout.runs.size(), 1U);
  EXPECT_EQ(layout.runs[0].range, (Range{0, 96}));
  EXPECT_EQ(lay_out(bucket, workload, {0, 0, 0, 0}, 2, {true, true, true, true}).encoded_elements, 96);
  EXPECT_EQ(lay_out(bucket, workload, {0, 0, 0, 0}, 2).encoded_elements, 0);
}

// However the bucket is cut, and whatever its padding.
TEST(Layout, ChunksPartitionTheBufferIntoEqualShards) {
  for_any_bucket([](std::mt19937& random, const AnyBucket& any) {
    const std::int64_t bytes = any.bucket.bytes;
    const std::int64_t chunk = 1 + random() % bytes;
    const std::int64_t size = size_of(any.layout.dtype);
    std::int64_t covered = 0;
    for (std::int64_t begin = 0; begin < bytes; begin += chunk) {
      const Range part = any.part({begin, std::min(begin + chunk, bytes)});
      ASSERT_EQ(part.begin, covered);
      ASSERT_LE(part.begin, part.end);
      expect_equal_shards(part.size(), any.layout.dtype, any.ranks);
      ASSERT_LE(part.size() * size, chunk * any.layout.bytes() / bytes + 2 * any.ranks * os::kCacheLineBytes);
      covered = part.end;
    }
    ASSERT_EQ(covered, any.layout.elements);
    ASSERT_EQ(any.part(kWholeBucket), (Range{0, any.layout.elements}));
  });
}

TEST(Layout, ShardsPartitionTheRuns) {
  for_any_bucket([](std::mt19937&, const AnyBucket& any) {
    const BucketLayout& layout = any.layout;
    const std::int64_t line = unit_of(layout.dtype, 1);
    std::int64_t next = 0;
    for (int rank = 0; rank < any.ranks; ++rank) {
      for (const auto& run : runs_within(layout, shard_of(layout.elements, layout.dtype, any.ranks, rank))) {
        ASSERT_EQ(run.range.begin, next);
        ASSERT_EQ(run.range.begin % line, 0);
        ASSERT_EQ(run.range.end % line, 0);
        next = run.range.end;
      }
    }
    ASSERT_EQ(next, layout.elements);
  });
}

}  // namespace
}  // namespace dear::buckets::layout_test
