#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/grid.h"

namespace dear::algorithm::testing {

// A reduce-scatter, all-gather or all-reduce of a whole grid: see [Note: dimension by dimension].
// `algorithms` names one for each dimension.
inline Program grid_program(const Grid& grid, const std::vector<int>& order,
                            const std::vector<std::string_view>& algorithms, Collective collective) {
  validate(grid);
  validate_order(grid, order);
  if (algorithms.size() != grid.sizes.size()) {
    throw ConfigError(fmt::format("{} algorithms were given for {} dimensions: give one for each",
                                  algorithms.size(), grid.sizes.size()));
  }
  const int ranks = grid.ranks();
  Program program = empty_program(fmt::format("{} over {}, dimensions {}", name_of(collective),
                                              fmt::join(grid.sizes, "x"), fmt::join(order, ", ")),
                                  collective, ranks, ranks);
  const auto add = [&](std::size_t place, Collective half) {
    const int dimension = order[place];
    add_line_rounds(grid,
                    {.dimension = dimension,
                     .before = {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(place)},
                     .collective = half,
                     .algorithm = algorithms[static_cast<std::size_t>(dimension)]},
                    1, 0, static_cast<int>(program.rounds.size()), program);
  };
  const bool scatters = collective == Collective::reduce_scatter || collective == Collective::all_reduce;
  const bool gathers = collective == Collective::all_gather || collective == Collective::all_reduce;
  if (!scatters && !gathers) {
    throw ConfigError(
        fmt::format("a {} does not go dimension by dimension: ask for a reduce-scatter, an "
                    "all-gather or an all-reduce",
                    name_of(collective)));
  }
  for (std::size_t i = 0; scatters && i < order.size(); ++i) add(i, Collective::reduce_scatter);
  for (std::size_t i = order.size(); gathers && i-- > 0;) add(i, Collective::all_gather);
  return program;
}

}  // namespace dear::algorithm::testing
