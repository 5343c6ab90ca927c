// Programs of devices: who ends with whose contributions, played with counts of contributions.
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/algorithms.h"
#include "dear/platform/algorithm/testing/verify.h"

namespace dear::algorithm {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing::verify;

using Held = std::map<int, int>;  // by rank: how often its contribution is in a block

// [rank][block], each rank beginning with its own in all blocks.
std::vector<std::vector<Held>> played(const Program& program, const std::vector<std::vector<Held>>& begin) {
  std::vector<std::vector<Held>> now = begin;
  for (const auto& round : program.rounds) {
    const std::vector<std::vector<Held>> before = now;
    for (std::size_t rank = 0; rank < round.size(); ++rank) {
      for (const BlockMessage& one : round[rank].receives)
        for (const Range& range : one.blocks)
          for (auto block = range.begin; block < range.end; ++block)
            now[rank][static_cast<std::size_t>(block)] =
                before[static_cast<std::size_t>(one.peer)][static_cast<std::size_t>(block)];
      for (const BlockMessage& one : round[rank].reduces)
        for (const Range& range : one.blocks)
          for (auto block = range.begin; block < range.end; ++block)
            for (const auto& [from, times] :
                 before[static_cast<std::size_t>(one.peer)][static_cast<std::size_t>(block)])
              now[rank][static_cast<std::size_t>(block)][from] += times;
    }
  }
  return now;
}

TEST(Averages, OfCellsHaveTheRanksOfTheCellAndEachOnce) {
  for (int ranks = 1; ranks <= 13; ++ranks) {
    for (int cells = 1; cells <= ranks; ++cells) {
      const Program program = all_reduce_in_cells(ranks, cells);
      std::vector<std::vector<Held>> begin(static_cast<std::size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank)
        begin[static_cast<std::size_t>(rank)].assign(static_cast<std::size_t>(program.blocks), {{rank, 1}});
      const auto end = played(program, begin);
      const int of_cell = (ranks + cells - 1) / cells;
      for (int rank = 0; rank < ranks; ++rank) {
        Held expected;
        const int first = rank / of_cell * of_cell;
        for (int one = first; one < std::min(first + of_cell, ranks); ++one) expected[one] = 1;
        for (const Held& block : end[static_cast<std::size_t>(rank)])
          EXPECT_EQ(block, expected) << ranks << " ranks, " << cells << " cells, rank " << rank;
      }
      verify(all_reduce_by_cells(ranks, cells));  // has all of them
    }
    verify(all_reduce_in_cells(ranks, 1));
  }
}

TEST(Averages, OfNeighboursSendAlongEdgesAlone) {
  const Program ring = neighbour_gather(4, {{0, 1}, {1, 2}, {2, 3}, {0, 3}});
  ASSERT_EQ(ring.rounds.size(), 1);
  std::vector<std::vector<Held>> begin(4, std::vector<Held>(4));
  for (std::size_t rank = 0; rank < 4; ++rank) begin[rank][rank] = {{static_cast<int>(rank), 1}};
  const auto end = played(ring, begin);
  for (std::size_t rank = 0; rank < 4; ++rank)
    for (std::size_t block = 0; block < 4; ++block)
      EXPECT_EQ(end[rank][block].empty(), (rank + 2) % 4 == block) << rank << " has " << block;
  verify(neighbour_gather(3, {{0, 1}, {1, 2}, {0, 2}}));  // a complete graph is an all-gather
}

TEST(Averages, RefuseCellsThatCannotBe) {
  for (const int cells : {0, -1, 5})
    EXPECT_THAT([&] { all_reduce_by_cells(4, cells); }, ThrowsMessage<ConfigError>(HasSubstr("give 1 to 4")));
}

}  // namespace
}  // namespace dear::algorithm
