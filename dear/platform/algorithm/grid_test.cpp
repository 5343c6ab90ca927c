#include "dear/platform/algorithm/grid.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/algorithms.h"
#include "dear/platform/algorithm/testing/grid_program.h"
#include "dear/platform/algorithm/testing/verify.h"

namespace dear::algorithm {
namespace {

using ::testing::ElementsAre;
using testing::grid_program;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing::verify;

constexpr Collective kShardCollectives[] = {Collective::reduce_scatter, Collective::all_gather,
                                            Collective::all_reduce};

std::vector<Grid> grids() {
  std::vector<Grid> all;
  for (int first = 1; first <= 4; ++first) {
    all.push_back({{first}});
    for (int second = 1; second <= 4; ++second) {
      all.push_back({{first, second}});
      for (int third = 1; third <= 2; ++third) all.push_back({{first, second, third}});
    }
  }
  all.push_back({{5, 3, 2}});
  all.push_back({{2, 2, 2, 2}});
  all.push_back({{1, 1, 3}});
  return all;
}

std::vector<int> first_order(const Grid& grid) {
  std::vector<int> order;
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    if (grid.sizes[static_cast<std::size_t>(dimension)] > 1) order.push_back(dimension);
  }
  return order;
}

TEST(Grid, RanksAreNumberedInsideOut) {
  const Grid grid{{3, 2, 4}};
  EXPECT_EQ(grid.ranks(), 24);
  EXPECT_EQ(grid.stride(2), 6);
  const int rank = 2 + 1 * 3 + 3 * 6;
  EXPECT_EQ(grid.coordinate(rank, 0), 2);
  EXPECT_EQ(grid.coordinate(rank, 1), 1);
  EXPECT_EQ(grid.coordinate(rank, 2), 3);
  EXPECT_THAT(grid.line(rank, 0), ElementsAre(21, 22, 23));
  EXPECT_THAT(grid.line(rank, 1), ElementsAre(20, 23));
  EXPECT_THAT(grid.line(rank, 2), ElementsAre(5, 11, 17, 23));
}

TEST(Grid, EveryOrderOfEveryGridIsProven) {
  for (const Grid& grid : grids()) {
    std::vector<int> order = first_order(grid);
    do {
      for (const Collective collective : kShardCollectives) {
        for (const std::string_view algorithm : line_algorithms()) {
          const std::vector<std::string_view> algorithms(grid.sizes.size(), algorithm);
          EXPECT_NO_THROW(verify(grid_program(grid, order, algorithms, collective)));
        }
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Grid, DimensionsMayDifferInTheirAlgorithms) {
  const Grid grid{{3, 4, 2}};
  for (const std::string_view first : line_algorithms()) {
    for (const std::string_view second : line_algorithms()) {
      for (const Collective collective : kShardCollectives) {
        EXPECT_NO_THROW(verify(grid_program(grid, {2, 0, 1}, {first, second, "direct"}, collective)));
      }
    }
  }
}

// Bytes of one rank, as blocks: each phase sends all that it holds but what it keeps.
TEST(Grid, APhaseSendsWhatItsDimensionLeavesToOthers) {
  const Grid grid{{2, 4}};
  const Program program = grid_program(grid, {1, 0}, {"ring", "ring"}, Collective::reduce_scatter);
  ASSERT_EQ(program.rounds.size(), 4U);
  std::int64_t across = 0;
  std::int64_t inside = 0;
  for (std::size_t round = 0; round < program.rounds.size(); ++round) {
    for (const BlockMessage& message : program.rounds[round][0].sends) {
      for (const Range& blocks : message.blocks) (round < 3 ? across : inside) += blocks.size();
    }
  }
  EXPECT_EQ(across, 6);  // of 8
  EXPECT_EQ(inside, 1);  // of the 2 that are left
}

TEST(Grid, OneDimensionIsTheAlgorithmItself) {
  const Program grid = grid_program({{4}}, {0}, {"ring"}, Collective::all_reduce);
  const Program ring = make_program(find_algorithm("ring"), Collective::all_reduce, {.ranks = 4});
  ASSERT_EQ(grid.rounds.size(), ring.rounds.size());
  for (std::size_t round = 0; round < ring.rounds.size(); ++round) {
    for (std::size_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(grid.rounds[round][rank].sends.front().peer, ring.rounds[round][rank].sends.front().peer);
      EXPECT_EQ(grid.rounds[round][rank].sends.front().blocks, ring.rounds[round][rank].sends.front().blocks);
    }
  }
}

TEST(Grid, RefusesWhatIsNone) {
  EXPECT_THROW(validate(Grid{}), ConfigError);
  EXPECT_THROW(validate(Grid{{2, 0}}), ConfigError);
  EXPECT_THROW(validate(Grid{{-2, -2}}), ConfigError);
  EXPECT_THROW(validate(Grid{{1 << 20, 1 << 20}}), ConfigError);
  EXPECT_NO_THROW(validate(Grid{{1 << 20, 1 << 10}}));
  const auto order = [](const std::vector<int>& dimensions) {
    return [dimensions] { validate_order({{2, 1, 3}}, dimensions); };
  };
  EXPECT_NO_THROW(order({2, 0})());
  for (const std::vector<int>& bad : {std::vector<int>{0}, {0, 0}, {0, 1, 2}, {0, 3}, {}}) {
    EXPECT_THAT(order(bad), ThrowsMessage<ConfigError>(HasSubstr("each of 0, 2 once")));
  }
  EXPECT_THAT([] { line_program("bruck", Collective::all_gather, 4); },
              ThrowsMessage<ConfigError>(HasSubstr("halving-doubling")));
  EXPECT_THROW(line_program("ring", Collective::broadcast, 4), ConfigError);
  for (const std::string_view algorithm : line_algorithms())
    EXPECT_THROW(line_program(algorithm, Collective::all_gather, 0), ConfigError);
  EXPECT_THROW(grid_program({{2, 2}}, {0, 1}, {"ring"}, Collective::all_reduce), ConfigError);
  EXPECT_THROW(grid_program({{2, 2}}, {0, 1}, {"ring", "ring"}, Collective::broadcast), ConfigError);
}

}  // namespace
}  // namespace dear::algorithm
