#include "dear/platform/algorithm/grid.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm {
namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 30;

Program direct_all_gather(int members) {
  Program program = empty_program("direct all-gather", Collective::all_gather, members, members);
  if (members > 1) program.add_round();
  for (int from = 0; from < members; ++from) {
    for (int ahead = 1; ahead < members; ++ahead) {
      program.send(0, from, (from + ahead) % members, {{.begin = from, .end = from + 1}});
    }
  }
  return program;
}

}  // namespace

int Grid::ranks() const { return stride(dimensions()); }

int Grid::stride(int dimension) const {
  int ranks = 1;
  for (int inner = 0; inner < dimension; ++inner) ranks *= sizes[static_cast<std::size_t>(inner)];
  return ranks;
}

int Grid::coordinate(int rank, int dimension) const {
  return rank / stride(dimension) % sizes[static_cast<std::size_t>(dimension)];
}

std::vector<int> Grid::line(int rank, int dimension) const {
  const int first = rank - coordinate(rank, dimension) * stride(dimension);
  std::vector<int> ranks;
  for (int member = 0; member < sizes[static_cast<std::size_t>(dimension)]; ++member) {
    ranks.push_back(first + member * stride(dimension));
  }
  return ranks;
}

void validate(const Grid& grid) {
  if (grid.sizes.empty()) throw ConfigError("a grid without dimensions cannot be: give a size, as in 2x4");
  std::int64_t ranks = 1;
  for (const int size : grid.sizes) {
    ranks *= std::max(size, 0);
    if (ranks < 1 || ranks > kMostRanks) {
      throw ConfigError(
          fmt::format("a grid of {} ranks cannot be: sizes are at least 1, and all ranks at most {}",
                      fmt::join(grid.sizes, "x"), kMostRanks));
    }
  }
}

void validate_order(const Grid& grid, const std::vector<int>& order) {
  std::vector<int> expected;
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    if (grid.sizes[static_cast<std::size_t>(dimension)] > 1) expected.push_back(dimension);
  }
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != expected) {
    throw ConfigError(
        fmt::format("an order of the dimensions of a grid of {} ranks has each of {} once, not {}",
                    fmt::join(grid.sizes, "x"), fmt::join(expected, ", "), fmt::join(order, ", ")));
  }
}

const std::vector<std::string_view>& line_algorithms() {
  static const std::vector<std::string_view> kNames{"ring", "halving-doubling", "direct"};
  return kNames;
}

Program line_program(std::string_view algorithm, Collective collective, int members) {
  const auto& names = line_algorithms();
  if (std::find(names.begin(), names.end(), algorithm) == names.end()) {
    throw ConfigError(fmt::format("no algorithm '{}' goes along a line of ranks; choose one of {}", algorithm,
                                  fmt::join(names, ", ")));
  }
  if (collective != Collective::reduce_scatter && collective != Collective::all_gather) {
    throw ConfigError(
        fmt::format("a line of ranks carries reduce-scatters and all-gathers, not {}", name_of(collective)));
  }
  if (members < 1) {
    throw ConfigError(fmt::format("a line of {} ranks cannot be: it has one at least", members));
  }
  if (algorithm != "direct") return make_program(find_algorithm(algorithm), collective, {.ranks = members});
  Program gather = direct_all_gather(members);
  return collective == Collective::all_gather ? gather : reversed(gather, "direct reduce-scatter");
}

void add_line_rounds(const Grid& grid, const LineRounds& what, int step, int offset, int round,
                     Program& outer) {
  const int size = grid.sizes[static_cast<std::size_t>(what.dimension)];
  const Program inner = line_program(what.algorithm, what.collective, size);
  // Blocks of the grid are held where the coordinates of the dimensions before agree.
  const auto held = [&](int rank, int block) {
    return std::all_of(what.before.begin(), what.before.end(), [&](int dimension) {
      return grid.coordinate(rank, dimension) == grid.coordinate(block, dimension);
    });
  };
  const int ranks = grid.ranks();
  for (int first = 0; first < ranks; ++first) {
    if (grid.coordinate(first, what.dimension) != 0) continue;
    std::vector<std::vector<Range>> blocks(static_cast<std::size_t>(size));
    for (int block = 0; block < ranks; ++block) {
      if (!held(first, block)) continue;
      const std::int64_t place = std::int64_t{block} * step + offset;
      blocks[static_cast<std::size_t>(grid.coordinate(block, what.dimension))].push_back(
          {.begin = place, .end = place + 1});
    }
    embed(inner, grid.line(first, what.dimension), blocks, round, outer);
  }
}

}  // namespace dear::algorithm
