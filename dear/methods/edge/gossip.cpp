#include "dear/methods/edge/gossip.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/edge/draws.h"
#include "dear/methods/rounds/vectors.h"

namespace dear::methods::edge {
namespace {

Graph ring(int devices, double, std::uint64_t) {
  Graph graph{.devices = devices, .edges = {}};
  for (int device = 0; device + 1 < devices; ++device) graph.edges.emplace_back(device, device + 1);
  if (devices > 2) graph.edges.emplace_back(devices - 1, 0);
  return graph;
}

// The squarest that has so many devices.
Graph torus(int devices, double, std::uint64_t) {
  int rows = static_cast<int>(std::sqrt(devices));
  while (devices % rows != 0) --rows;
  const int columns = devices / rows;
  Graph graph{.devices = devices, .edges = {}};
  const auto join = [&](int one, int other) {
    if (one == other) return;
    const std::pair<int, int> edge = std::minmax(one, other);
    if (std::find(graph.edges.begin(), graph.edges.end(), edge) == graph.edges.end())
      graph.edges.push_back(edge);
  };
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) {
      join(row * columns + column, row * columns + (column + 1) % columns);
      join(row * columns + column, (row + 1) % rows * columns + column);
    }
  return graph;
}

template <typename Joined>
Graph all_pairs(int devices, const Joined& joined) {
  Graph graph{.devices = devices, .edges = {}};
  for (int one = 0; one < devices; ++one)
    for (int other = one + 1; other < devices; ++other)
      if (joined(one, other)) graph.edges.emplace_back(one, other);
  return graph;
}

Graph complete(int devices, double, std::uint64_t) {
  return all_pairs(devices, [](int, int) { return true; });
}

Graph erdos_renyi(int devices, double density, std::uint64_t seed) {
  codec::Draw draw = draws_of(seed, Purpose::graph, 0);
  return all_pairs(devices, [&](int, int) { return coin(draw, density); });
}

Graph geometric(int devices, double density, std::uint64_t seed) {
  codec::Draw draw = draws_of(seed, Purpose::graph, 1);
  std::vector<std::pair<double, double>> places;
  for (int device = 0; device < devices; ++device) {
    const double across = unit(draw);
    places.emplace_back(across, unit(draw));
  }
  return all_pairs(devices, [&](int one, int other) {
    return std::hypot(places[index_of(one)].first - places[index_of(other)].first,
                      places[index_of(one)].second - places[index_of(other)].second) <= density;
  });
}

void check_connected(const Graph& graph, std::string_view kind) {
  std::vector<bool> reached(index_of(graph.devices));
  reached[0] = true;
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& [one, other] : graph.edges)
      if (reached[index_of(one)] != reached[index_of(other)]) {
        reached[index_of(one)] = reached[index_of(other)] = true;
        grows = true;
      }
  }
  const auto alone = std::find(reached.begin(), reached.end(), false);
  if (alone != reached.end())
    throw ConfigError(fmt::format(
        "in the {} graph device 0 does not reach device {}, so they never agree: give a larger density", kind,
        alone - reached.begin()));
}

}  // namespace

const std::vector<GraphKind>& graph_kinds() {
  static const std::vector<GraphKind> kGraphKinds = {
      {"ring", "two neighbours each", ring},
      {"torus", "four neighbours each", torus},
      {"complete", "everybody is a neighbour", complete},
      {"erdos-renyi", "each pair with a probability of the density", erdos_renyi},
      {"geometric", "pairs up to a distance of the density on a square of side 1", geometric},
  };
  return kGraphKinds;
}

Graph make_graph(std::string_view kind, int devices, double density, std::uint64_t seed) {
  const GraphKind& found = find_named(graph_kinds(), kind, "graph");
  if (devices < 1)
    throw ConfigError(fmt::format("a graph of {} devices cannot be: give at least 1", devices));
  if (!(density >= 0 && density <= 2))
    throw ConfigError(fmt::format("a density of {} cannot be: give one from 0 to 1", density));
  Graph graph = found.make(devices, density, seed);
  check_connected(graph, kind);
  return graph;
}

Weights metropolis(const Graph& graph) {
  std::vector<int> degrees(index_of(graph.devices));
  for (const auto& [one, other] : graph.edges) {
    ++degrees[index_of(one)];
    ++degrees[index_of(other)];
  }
  Weights weights(degrees.size(), std::vector<double>(degrees.size()));
  for (const auto& [one, other] : graph.edges)
    weights[index_of(one)][index_of(other)] = weights[index_of(other)][index_of(one)] =
        1.0 / (1 + std::max(degrees[index_of(one)], degrees[index_of(other)]));
  for (std::size_t device = 0; device < degrees.size(); ++device)
    weights[device][device] = 1 - std::accumulate(weights[device].begin(), weights[device].end(), 0.0);
  return weights;
}

void check_doubly_stochastic(const Weights& weights) {
  constexpr double kRounding = 1e-9;
  for (std::size_t row = 0; row < weights.size(); ++row) {
    if (weights[row].size() != weights.size())
      throw ConfigError(fmt::format("row {} of the weights has {} of {} numbers: give a square", row,
                                    weights[row].size(), weights.size()));
    const double sum = std::accumulate(weights[row].begin(), weights[row].end(), 0.0);
    if (!(std::abs(sum - 1) <= kRounding))
      throw ConfigError(
          fmt::format("row {} of the weights sums to {}, so the mean would drift: it must be 1", row, sum));
    for (std::size_t column = 0; column < weights.size(); ++column)
      if (!(weights[row][column] >= -kRounding) ||
          (weights[column].size() == weights.size() &&
           std::abs(weights[row][column] - weights[column][row]) > kRounding))
        throw ConfigError(fmt::format("the weight of devices {} and {} is negative or not the same both ways",
                                      row, column));
  }
}

double contraction(const Weights& weights) {
  check_doubly_stochastic(weights);
  const std::size_t devices = weights.size();
  if (devices < 2) return 0;
  // The largest eigenvalue of (W - 11'/n)^2 is the square of what is sought.
  const auto apply = [&](std::span<const double> in, std::span<double> out) {
    std::vector<double> once(devices);
    const auto step = [&](std::span<const double> from, std::span<double> to) {
      double mean = 0;
      for (const double value : from) mean += value / static_cast<double>(devices);
      for (std::size_t row = 0; row < devices; ++row) {
        to[row] = -mean;
        for (std::size_t column = 0; column < devices; ++column)
          to[row] += weights[row][column] * from[column];
      }
    };
    step(in, once);
    step(once, out);
  };
  return std::sqrt(std::max(0.0, rounds::largest_eigenvalue(apply, devices)));
}

void mix(const Weights& weights, std::vector<std::vector<double>>& models) {
  std::vector<std::vector<double>> mixed(models.size(), std::vector<double>(models.front().size()));
  for (std::size_t row = 0; row < models.size(); ++row)
    for (std::size_t column = 0; column < models.size(); ++column)
      if (weights[row][column] != 0) rounds::add_scaled(weights[row][column], models[column], mixed[row]);
  models = std::move(mixed);
}

double disagreement(const std::vector<std::vector<double>>& models) {
  std::vector<double> mean(models.front().size());
  for (const std::vector<double>& model : models)
    rounds::add_scaled(1 / static_cast<double>(models.size()), model, mean);
  double sum = 0;
  for (const std::vector<double>& model : models) sum += rounds::squared_distance(model, mean);
  return sum;
}

Choco::Choco(Weights weights, double gamma, const Quantiser& quantiser, QuantiserOptions options)
    : weights_(std::move(weights)), gamma_(gamma), quantiser_(quantiser), options_(options) {
  check_doubly_stochastic(weights_);
  if (!(gamma > 0 && gamma <= 1))
    throw ConfigError(fmt::format("a consensus step of {} cannot be: give one above 0, at most 1", gamma));
}

void Choco::mix(std::vector<std::vector<double>>& models, std::uint64_t seed, std::int64_t step) {
  const std::size_t elements = models.front().size();
  copies_.resize(models.size(), std::vector<double>(elements));
  std::vector<double> difference(elements), sent(elements);
  for (std::size_t device = 0; device < models.size(); ++device) {
    for (std::size_t i = 0; i < elements; ++i) difference[i] = models[device][i] - copies_[device][i];
    codec::Draw draw = draws_of(seed, Purpose::quantiser, step, static_cast<int>(device));
    quantise(quantiser_, difference, options_, draw, sent);
    rounds::add_scaled(1, sent, copies_[device]);
  }
  for (std::size_t row = 0; row < models.size(); ++row)
    for (std::size_t column = 0; column < models.size(); ++column) {
      const double weight = gamma_ * weights_[row][column];
      if (row == column || weight == 0) continue;
      rounds::add_scaled(weight, copies_[column], models[row]);
      rounds::add_scaled(-weight, copies_[row], models[row]);
    }
}

}  // namespace dear::methods::edge
