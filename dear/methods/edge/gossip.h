#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dear/methods/edge/quantisers.h"

// Averages without a server: devices average with their neighbours (Xiao and Boyd 2004,
// doi:10.1016/j.sysconle.2004.02.022), also of compressed differences, CHOCO (Koloskova, Stich and Jaggi
// 2019, arXiv 1902.00340). Pure functions and values; ConfigError in one sentence.
namespace dear::methods::edge {

struct Graph {
  int devices = 0;
  std::vector<std::pair<int, int>> edges;  // each once
};
struct GraphKind {
  std::string_view name, summary;
  // `density`: the probability of an edge, or the distance on a square of side 1 up to which there is one.
  Graph (*make)(int devices, double density, std::uint64_t seed);
};
const std::vector<GraphKind>& graph_kinds();  // ring, torus, complete, erdos-renyi, geometric
// ConfigError for a graph that falls apart, which names a device that device 0 does not reach.
Graph make_graph(std::string_view kind, int devices, double density, std::uint64_t seed);

// Symmetric weights whose rows sum to 1, [device][device].
using Weights = std::vector<std::vector<double>>;
// An edge weighs 1 / (1 + the larger degree); the diagonal has the rest.
Weights metropolis(const Graph& graph);
// ConfigError for weights that are no square, negative, not symmetric, or whose rows do not sum to 1.
void check_doubly_stochastic(const Weights& weights);
// The second largest magnitude of an eigenvalue: what is left of the distance from the mean after a step, at
// most. 1 where the graph falls apart.
double contraction(const Weights& weights);

// x_i <- sum_j W_ij x_j.
void mix(const Weights& weights, std::vector<std::vector<double>>& models);
// sum_i |x_i - mean|^2.
double disagreement(const std::vector<std::vector<double>>& models);

// x_i <- x_i + gamma sum_j W_ij (y_j - y_i) with public copies y_i, which get a compressed x_i - y_i each
// step. Preserves the mean.
class Choco {
 public:
  Choco(Weights weights, double gamma, const Quantiser& quantiser, QuantiserOptions options);
  void mix(std::vector<std::vector<double>>& models, std::uint64_t seed, std::int64_t step);

 private:
  Weights weights_;
  double gamma_;
  const Quantiser& quantiser_;
  QuantiserOptions options_;
  std::vector<std::vector<double>> copies_;
};

}  // namespace dear::methods::edge
