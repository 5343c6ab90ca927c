#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm {
namespace {

constexpr int kBlocks = 8;  // of a vector that is added up, so that the rounds of its parts overlap

std::vector<std::vector<Range>> all_blocks() {
  std::vector<std::vector<Range>> blocks;
  for (int block = 0; block < kBlocks; ++block) blocks.push_back({{.begin = block, .end = block + 1}});
  return blocks;
}

// The ranks of each cell.
std::vector<std::vector<int>> cells_of(int ranks, int cells) {
  if (cells < 1 || cells > ranks)
    throw ConfigError(fmt::format("{} cells of {} ranks: give 1 to {}", cells, ranks, ranks));
  const int of_cell = (ranks + cells - 1) / cells;
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank % of_cell == 0) all.emplace_back();
    all.back().push_back(rank);
  }
  return all;
}

// Broadcasts from the first of each of these sets of ranks, side by side, from the last round on; or sums at
// it.
void add_trees(const std::vector<std::vector<int>>& sets, bool to_first, Program& program) {
  const auto begin = static_cast<int>(program.rounds.size());
  for (const std::vector<int>& members : sets) {
    const Program spread = double_tree_broadcast(static_cast<int>(members.size()), kBlocks);
    embed(to_first ? reversed(spread, "sum at the first") : spread, members, all_blocks(), begin, program);
  }
}

}  // namespace

Program neighbour_gather(int ranks, const std::vector<std::pair<int, int>>& edges) {
  Program program = empty_program("all-gather of neighbours", Collective::all_gather, ranks, ranks);
  program.add_round();
  for (const auto& [one, other] : edges) {
    program.send(0, one, other, {{.begin = one, .end = one + 1}});
    program.send(0, other, one, {{.begin = other, .end = other + 1}});
  }
  return program;
}

Program all_reduce_in_cells(int ranks, int cells) {
  Program program = empty_program("all-reduce in cells", Collective::all_reduce, ranks, kBlocks);
  const std::vector<std::vector<int>> members = cells_of(ranks, cells);
  add_trees(members, true, program);
  add_trees(members, false, program);
  return program;
}

Program all_reduce_by_cells(int ranks, int cells) {
  Program program = empty_program("all-reduce by cells", Collective::all_reduce, ranks, kBlocks);
  const std::vector<std::vector<int>> members = cells_of(ranks, cells);
  std::vector<int> firsts;
  for (const std::vector<int>& cell : members) firsts.push_back(cell.front());
  add_trees(members, true, program);
  add_trees({firsts}, true, program);
  add_trees({firsts}, false, program);
  add_trees(members, false, program);
  return program;
}

}  // namespace dear::algorithm
