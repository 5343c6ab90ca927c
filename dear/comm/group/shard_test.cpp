#include "dear/comm/group/shard.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::shard_test {
namespace {

TEST(Shard, CoversTheVectorInOrderWithBlocksOfWholeLines) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::u8}) {
    for (const int ranks : {1, 2, 3, 4, 7, 8, 64}) {
      for (const std::int64_t count : {0, 1, 2, 15, 16, 17, 63, 64, 65, 1000, 4096, 100'003}) {
        std::int64_t end = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Range shard = shard_of(count, dtype, ranks, rank);
          ASSERT_EQ(shard.begin, end) << count << " on " << ranks;
          ASSERT_GE(shard.size(), 0);
          if (shard.end < count) {
            ASSERT_EQ(shard.end * size_of(dtype) % 64, 0);
            ASSERT_EQ(shard.size(), shard_of(count, dtype, ranks, 0).size());
          }
          end = shard.end;
        }
        ASSERT_EQ(end, count);
      }
    }
  }
}

TEST(Shard, OfUnequalSharesCoversTheVectorInOrderWithALineForEachRank) {
  for (const std::vector<double>& weights :
       {std::vector<double>{1, 1, 1}, {3, 0, 1}, {0, 0, 1}, {1e-9, 1, 1e9}, {1, 0, 0}}) {
    const ShardShares shares = shard_shares(weights);
    for (const DType dtype : {DType::f32, DType::bf16, DType::u8}) {
      const std::int64_t line = 64 / size_of(dtype);
      for (const std::int64_t count : {0, 1, 40, 47, 48, 192, 1000, 100'003}) {
        std::int64_t end = 0;
        for (int rank = 0; rank < 3; ++rank) {
          const Range shard = shard_of(count, dtype, 3, rank, &shares);
          ASSERT_EQ(shard.begin, end) << count;
          ASSERT_TRUE(shard.end % line == 0 || shard.end == count) << count;
          ASSERT_TRUE(!shard.empty() || count <= 2 * line) << count;
          end = shard.end;
        }
        ASSERT_EQ(end, count);
      }
    }
  }
  // 1000 lines: one each, and of the other 997 three quarters and a quarter.
  const ShardShares shares = shard_shares({3, 0, 1});
  EXPECT_EQ(shard_of(16'000, DType::f32, 3, 0, &shares), (Range{0, 748 * 16}));
  EXPECT_EQ(shard_of(16'000, DType::f32, 3, 1, &shares), (Range{748 * 16, 749 * 16}));
  EXPECT_EQ(shard_of(16'000, DType::f32, 3, 2, nullptr), shard_of(16'000, DType::f32, 3, 2));
  EXPECT_EQ(shard_of(20, DType::f32, 3, 1, &shares), shard_of(20, DType::f32, 3, 1)) << "two lines";
}

TEST(Shard, RefusesWeightsThatAreNone) {
  EXPECT_THROW(shard_shares({1, -1}), ConfigError);
  EXPECT_THROW(shard_shares({1, std::nan("")}), ConfigError);
  EXPECT_THROW(shard_shares({std::numeric_limits<double>::infinity(), 1}), ConfigError);
  EXPECT_THROW(shard_shares({0, 0}), ConfigError);
  EXPECT_THROW(shard_shares({}), ConfigError);
}

TEST(Shard, RoundsUpToALine) {
  // 100 fp32 on 3 ranks: 34 each, which is 3 lines of 16.
  EXPECT_EQ(shard_of(100, DType::f32, 3, 0), (Range{0, 48}));
  EXPECT_EQ(shard_of(100, DType::f32, 3, 1), (Range{48, 96}));
  EXPECT_EQ(shard_of(100, DType::f32, 3, 2), (Range{96, 100}));
}

TEST(Shard, IsEmptyWhereThereIsNothingLeft) {
  EXPECT_EQ(shard_of(3, DType::f32, 4, 0), (Range{0, 3}));
  EXPECT_EQ(shard_of(3, DType::f32, 4, 1), (Range{3, 3}));
  EXPECT_EQ(shard_of(3, DType::f32, 4, 3), (Range{3, 3}));
}

TEST(Shard, HoldsForVeryLongVectors) {
  constexpr std::int64_t kCount = std::int64_t{1} << 52;
  EXPECT_EQ(shard_of(kCount, DType::u8, 128, 127).end, kCount);
}

}  // namespace
}  // namespace dear::shard_test
