#include "dear/tools/edge_command/averages.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/group/exchange.h"
#include "dear/methods/edge/draws.h"
#include "dear/systems/edge/averaging.h"
#include "dear/tools/options/numbers.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/table.h"

namespace dear::edge_command {
namespace {

constexpr std::int64_t kMostRanks = 64, kMost = 1'000'000;
constexpr double kSameMean = 1e-10;

std::vector<double> vector_of(const AverageSettings& settings, int rank) {
  codec::Draw draw = methods::edge::draws_of(settings.seed, methods::edge::Purpose::model, 0, rank);
  std::vector<double> vector(static_cast<std::size_t>(settings.elements));
  for (double& one : vector) one = methods::edge::normal(draw);
  return vector;
}

// One process makes this of the vectors in a round of cells.
void average_cells(std::vector<std::vector<double>>& vectors, std::size_t of_cell) {
  for (std::size_t begin = 0; begin < vectors.size(); begin += of_cell) {
    const std::size_t end = std::min(begin + of_cell, vectors.size());
    for (std::size_t at = 0; at < vectors.front().size(); ++at) {
      double sum = 0;
      for (std::size_t i = begin; i < end; ++i) sum += vectors[i][at];
      for (std::size_t i = begin; i < end; ++i) vectors[i][at] = sum / static_cast<double>(end - begin);
    }
  }
}

}  // namespace

AverageSettings check(const AverageOptions& options) {
  AverageSettings settings{.methods = options.methods,
                           .rounds = options.rounds,
                           .elements = options.elements,
                           .intra_rounds = options.intra_rounds,
                           .weights = {},
                           .seed = options.seed};
  if (settings.methods.empty()) settings.methods = {"gossip", "hierarchical"};
  for (const std::string& method : settings.methods)
    if (method != "gossip" && method != "hierarchical")
      throw ConfigError(fmt::format("--method: there is no '{}': take gossip or hierarchical", method));
  cli::check_range("--ranks", options.ranks, 1, kMostRanks);
  cli::check_range("--rounds", options.rounds, 1, kMost);
  cli::check_range("--elements", options.elements, 1, 10 * kMost);
  cli::check_range("--intra-rounds", options.intra_rounds, 0, kMost);
  const std::int64_t cells = options.cells.value_or(std::min<std::int64_t>(2, options.ranks));
  cli::check_range("--cells", cells, 1, options.ranks);
  settings.ranks = static_cast<int>(options.ranks);
  settings.cells = static_cast<int>(cells);
  settings.weights = metropolis(cli::parse_option("--graph", [&] {
    return methods::edge::make_graph(options.graph, settings.ranks, options.density, options.seed);
  }));
  return settings;
}

Averaged average(const AverageSettings& settings, const std::string& method, const Group& group) {
  const bool gossips = method == "gossip";
  const int ranks = group.size(), cells = settings.cells;
  const auto of_cell = static_cast<std::size_t>((ranks + cells - 1) / cells);
  std::vector<std::vector<double>> expected;
  for (int rank = 0; rank < ranks; ++rank) expected.push_back(vector_of(settings, rank));
  std::vector<double> own = expected[index_of(group.rank())];
  const std::vector<double> mean = systems::edge::mean_of(group, own);
  const double begin = systems::edge::disagreement(group, own, mean);
  std::optional<systems::edge::Gossip> gossip;
  std::optional<systems::edge::Hierarchy> hierarchy;
  if (gossips) gossip.emplace(group, settings.weights, settings.elements);
  if (!gossips) hierarchy.emplace(group, cells, settings.elements);
  Averaged found{.method = method,
                 .most = gossips ? std::pow(methods::edge::contraction(settings.weights), 2) : 0};
  std::vector<double> seconds;
  for (std::int64_t round = 1; round <= settings.rounds; ++round) {
    const bool together = round % (settings.intra_rounds + 1) == 0;
    const double from = now_seconds();
    if (gossips) {
      gossip->mix(own);
    } else {
      together ? hierarchy->mix_all(own) : hierarchy->mix_cell(own);
    }
    seconds.push_back(now_seconds() - from);
    gossips ? methods::edge::mix(settings.weights, expected)
            : average_cells(expected, together ? expected.size() : of_cell);
    found.left.push_back(begin > 0 ? systems::edge::disagreement(group, own, mean) / begin : 0);
  }
  double apart = 0;
  for (std::size_t i = 0; i < own.size(); ++i)
    apart = std::max(apart, std::abs(own[i] - expected[index_of(group.rank())][i]));
  for (const double of_rank : comm::all_gather_values(group, apart))
    found.difference = std::max(found.difference, of_rank);
  for (const double of_rank : comm::all_gather_values(group, spread_of(seconds).median))
    found.seconds = std::max(found.seconds, of_rank);
  return found;
}

std::string to_text(const AverageSettings& settings, const std::vector<Averaged>& all) {
  cli::Table table({"method", "a round", "leaves at most",
                    "after " + std::to_string(settings.rounds) + " rounds", "from one process"},
                   {.left_columns = 1});
  for (const Averaged& one : all)
    table.add({one.method, format_seconds(one.seconds), one.most > 0 ? fmt::format("{:.3f}", one.most) : "-",
               fmt::format("{:.2e}", one.left.back()), fmt::format("{:.0e}", one.difference)});
  return fmt::format(
      "{} ranks, vectors of {} elements; squared distance from their mean, of that before the first "
      "round\n\n{}",
      settings.ranks, cli::with_separators(settings.elements), table.to_string());
}

std::string to_json(const std::vector<Averaged>& all) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Averaged& one : all) {
    json.push_back({{"method", one.method},
                    {"left", one.left},
                    {"round_seconds", one.seconds},
                    {"difference", one.difference}});
    if (one.most > 0) json.back()["left_at_most_in_a_round"] = one.most;
  }
  return json.dump(2) + "\n";
}

void require_averages(const std::vector<Averaged>& all) {
  for (const Averaged& one : all)
    if (!(one.difference <= kSameMean))
      throw Error(fmt::format("{} is not what one process makes of the vectors", one.method));
}

}  // namespace dear::edge_command
