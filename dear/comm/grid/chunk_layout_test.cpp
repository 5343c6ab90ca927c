#include "dear/comm/grid/chunk_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::grid {
namespace {

using ::testing::ElementsAre;

TEST(PieceBorders, AreSharesInWholeCacheLines) {
  EXPECT_THAT(piece_borders({100, 100, 200}, 64, DType::f32), ElementsAre(0, 16, 32, 64));
  EXPECT_THAT(piece_borders({1, 1, 1}, 64, DType::f32), ElementsAre(0, 16, 48, 64));
}

TEST(PieceBorders, LeaveChunksEmptyWhereThereAreFewLines) {
  EXPECT_THAT(piece_borders({1, 1, 1, 1}, 8, DType::f64), ElementsAre(0, 0, 8, 8, 8));
  EXPECT_THAT(piece_borders({0, 5, 0}, 32, DType::f16), ElementsAre(0, 0, 32, 32));
  EXPECT_THAT(piece_borders({0}, 64, DType::u8), ElementsAre(0, 64));
}

TEST(Places, FollowTheOrderOfDimensions) {
  const algorithm::Grid grid{{2, 3}};
  const Places inner_first(grid, {0, 1}, 3);  // of rank 3, at (1, 1)
  EXPECT_EQ(inner_first.of(1), 3);            // (1, 0)
  EXPECT_EQ(inner_first.of(4), 2);            // (0, 2)
  EXPECT_EQ(inner_first.held(0), (Range{0, 6}));
  EXPECT_EQ(inner_first.held(1), (Range{3, 6}));
  EXPECT_EQ(inner_first.held(2), (Range{4, 5}));
  const Places outer_first(grid, {1, 0}, 3);
  EXPECT_EQ(outer_first.of(4), 4);
  EXPECT_EQ(outer_first.held(1), (Range{2, 4}));
  EXPECT_EQ(outer_first.held(2), (Range{3, 4}));
}

TEST(Places, EndWithTheRanksOwnPiece) {
  const algorithm::Grid grid{{2, 1, 3, 2}};
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    for (const std::vector<int>& order : std::vector<std::vector<int>>{{0, 2, 3}, {3, 0, 2}, {2, 3, 0}}) {
      const Places places(grid, order, rank);
      EXPECT_EQ(places.held(3), (Range{places.of(rank), places.of(rank) + 1}));
    }
  }
}

}  // namespace
}  // namespace dear::grid
