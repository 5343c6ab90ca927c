#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "dear/comm/backends/init.h"

namespace dear::cli {

// The options that put ranks into a grid, as the user wrote them.
struct GridOptions {
  std::optional<std::string> grid{};
  std::vector<std::string> algorithms{};  // themis
  std::optional<std::int64_t> chunks{};
  std::vector<std::string> interfaces{};

  // Several algorithms are for a command that compares them.
  void add_to(CLI::App& command, bool several_algorithms);
};

// The grids that the options ask for, one for each algorithm; `network` is --network, which models a grid
// where it is a cluster file of several dimensions. Empty where no grid is asked for. ConfigError naming the
// option.
std::vector<GridSettings> checked_grids(const GridOptions& options, const std::optional<std::string>& network,
                                        int ranks);

// The words of a command that ask for such a grid.
std::vector<std::string> words_of(const GridOptions& options, const std::optional<std::string>& network,
                                  const std::string& algorithm);

}  // namespace dear::cli
