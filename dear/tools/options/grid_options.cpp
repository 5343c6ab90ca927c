#include "dear/tools/options/grid_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/in_grid.h"
#include "dear/comm/shaped/modelled_network.h"
#include "dear/platform/cluster/cluster_file.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"

namespace dear::cli {
namespace {

// The cluster of --network, where it has several dimensions.
std::optional<Cluster> modelled_cluster(const std::optional<std::string>& network) {
  if (!network || !names_file(*network)) return std::nullopt;
  if (parse_option("--network", [&] { return names_pair_cluster(*network); })) return std::nullopt;
  Cluster cluster = parse_option("--network", [&] { return read_cluster(*network); });
  const auto several = [](const Dimension& dimension) { return dimension.size > 1; };
  if (std::count_if(cluster.dimensions.begin(), cluster.dimensions.end(), several) < 2) return std::nullopt;
  return cluster;
}

std::optional<GridSettings> grid_asked_for(const GridOptions& options,
                                           const std::optional<std::string>& network) {
  std::optional<Cluster> modelled = modelled_cluster(network);
  if (!options.grid && !modelled) return std::nullopt;
  if (options.grid && network) {
    throw ConfigError(
        "--grid and --network exclude each other: a grid is of real networks, and a cluster file of several "
        "dimensions given as --network models them all");
  }
  if (modelled) return GridSettings{.cluster = std::move(modelled), .modelled = true};
  return parse_option("--grid", [&] { return parse_grid(*options.grid); });
}

}  // namespace

void GridOptions::add_to(CLI::App& command, bool several_algorithms) {
  const OptionAdder add(command);
  add("--grid", grid, "SIZES",
      "Put ranks into a grid whose dimensions are networks of their own: sizes from the innermost "
      "out, such as 2x4, whose links are measured at the start, or a cluster file that says both");
  auto* const algorithm =
      add("--algorithm", algorithms, several_algorithms ? "NAME[,NAME...]" : "NAME",
          "How chunks go through a grid: " + names_in(cost::chunk_planners()) + " (default themis)");
  if (several_algorithms) {
    algorithm->delimiter(',')->allow_extra_args(false);
  } else {
    algorithm->expected(1);
  }
  add("--chunks", chunks, "N", "Chunks of a vector in a grid, at most (default 64)");
  add.list(
      "--interfaces", interfaces, "NAME[,NAME...]",
      "Network interfaces of a grid on backend gloo, one for each dimension; memory for one inside hosts");
}

std::vector<GridSettings> checked_grids(const GridOptions& options, const std::optional<std::string>& network,
                                        int ranks) {
  const std::optional<GridSettings> asked = grid_asked_for(options, network);
  if (!asked) {
    if (!options.algorithms.empty() || options.chunks || !options.interfaces.empty()) {
      throw ConfigError(fmt::format("{} is of a grid: give --grid too, or leave it out",
                                    !options.algorithms.empty() ? "--algorithm"
                                    : options.chunks            ? "--chunks"
                                                                : "--interfaces"));
    }
    return {};
  }
  const std::string_view option = asked->modelled ? "--network" : "--grid";
  std::vector<GridSettings> grids;
  for (const std::string& algorithm :
       options.algorithms.empty() ? std::vector<std::string>{asked->algorithm} : options.algorithms) {
    GridSettings settings = *asked;
    if (!cost::is_chunk_planner(algorithm)) {
      throw ConfigError(fmt::format("--algorithm: there is no '{}'; choose from {}", algorithm,
                                    names_in(cost::chunk_planners())));
    }
    settings.algorithm = algorithm;
    if (options.chunks) {
      check_range("--chunks", *options.chunks, 1, cost::kMostChunks);
      settings.chunks = static_cast<int>(*options.chunks);
    }
    settings.interfaces = options.interfaces;
    parse_option(option, [&] { return validate(settings, ranks), 0; });
    grids.push_back(std::move(settings));
  }
  return grids;
}

std::vector<std::string> words_of(const GridOptions& options, const std::optional<std::string>& network,
                                  const std::string& algorithm) {
  std::vector<std::string> words;
  if (options.grid) words.insert(words.end(), {"--grid", *options.grid});
  if (network) words.insert(words.end(), {"--network", *network});
  words.insert(words.end(), {"--algorithm", algorithm});
  if (options.chunks) words.insert(words.end(), {"--chunks", std::to_string(*options.chunks)});
  if (!options.interfaces.empty())
    words.insert(words.end(), {"--interfaces", fmt::format("{}", fmt::join(options.interfaces, ","))});
  return words;
}

}  // namespace dear::cli
