#include "dear/methods/pipeline/communities.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "dear/base/vocabulary/ids.h"

namespace dear::methods::pipeline {
namespace {

using Communities = std::vector<std::vector<int>>;

constexpr double kGain = 1e-12;  // of modularity: less is rounding
constexpr std::size_t kExact = 8;
constexpr double kNoPath = std::numeric_limits<double>::infinity();

double degree(const Weights& weights, std::size_t node) {
  return std::accumulate(weights[node].begin(), weights[node].end(), 0.0);
}

// Numbers communities by their first nodes.
void renumber(std::vector<int>& community) {
  std::vector<int> number(community.size(), -1);
  int next = 0;
  for (int& of_node : community) {
    int& known = number[index_of(of_node)];
    if (known < 0) known = next++;
    of_node = known;
  }
}

// Moves nodes, one after the other in this order, to where modularity gains most, until none gains.
void move_nodes(const Weights& weights, const std::vector<std::size_t>& order, std::vector<int>& community) {
  const std::size_t nodes = weights.size();
  std::vector<double> degrees(nodes), total(nodes);
  double all = 0;
  for (std::size_t node = 0; node < nodes; ++node) {
    degrees[node] = degree(weights, node);
    all += degrees[node];
    total[index_of(community[node])] += degrees[node];
  }
  if (all <= 0) return;
  for (bool moved = true; moved;) {
    moved = false;
    for (const std::size_t node : order) {
      std::vector<double> to(nodes);  // by community: weight of the node's edges to others in it
      for (std::size_t other = 0; other < nodes; ++other)
        if (other != node) to[index_of(community[other])] += weights[node][other];
      const int own = community[node];
      total[index_of(own)] -= degrees[node];
      const auto gain = [&](std::size_t c) { return 2 * (to[c] - degrees[node] * total[c] / all) / all; };
      std::size_t best = index_of(own);
      for (std::size_t c = 0; c < nodes; ++c)
        if (gain(c) > gain(best) + kGain) best = c;
      total[best] += degrees[node];
      community[node] = static_cast<int>(best);
      moved = moved || best != index_of(own);
    }
  }
}

// Communities as nodes: weights between and, twice, within.
Weights joined(const Weights& weights, const std::vector<int>& community, std::size_t communities) {
  Weights of_communities(communities, std::vector<double>(communities));
  for (std::size_t i = 0; i < weights.size(); ++i)
    for (std::size_t j = 0; j < weights.size(); ++j)
      of_communities[index_of(community[i])][index_of(community[j])] += weights[i][j];
  return of_communities;
}

std::size_t count_of(const std::vector<int>& community) {
  return index_of(*std::max_element(community.begin(), community.end()) + 1);
}

std::vector<int> louvain_from(const Weights& weights, const std::vector<std::size_t>& order) {
  std::vector<int> community(weights.size());
  std::iota(community.begin(), community.end(), 0);
  Weights level = weights;
  std::vector<std::size_t> order_of_level = order;
  for (;;) {
    std::vector<int> moved(level.size());
    std::iota(moved.begin(), moved.end(), 0);
    move_nodes(level, order_of_level, moved);
    renumber(moved);
    for (int& of_node : community) of_node = moved[index_of(of_node)];
    if (count_of(moved) == level.size()) break;
    level = joined(level, moved, count_of(moved));
    order_of_level.resize(level.size());
    std::iota(order_of_level.begin(), order_of_level.end(), std::size_t{0});
  }
  move_nodes(weights, order, community);
  renumber(community);
  return community;
}

// The path with the least sum of `costs` over subsets of nodes (Held and Karp 1962, doi:10.1137/0110015), or
// with the least maximum; infinite costs are never taken. Empty where there is none.
std::vector<int> best_path(const Weights& costs, int first, int last, bool of_maximum) {
  const std::size_t nodes = costs.size(), all = (std::size_t{1} << nodes) - 1;
  const auto join = [&](double a, double b) { return of_maximum ? std::max(a, b) : a + b; };
  std::vector<std::vector<double>> best(all + 1, std::vector<double>(nodes, kNoPath));
  std::vector<std::vector<int>> before(all + 1, std::vector<int>(nodes, -1));
  for (std::size_t node = 0; node < nodes; ++node)
    if (first < 0 || index_of(first) == node) best[std::size_t{1} << node][node] = 0;
  for (std::size_t set = 1; set <= all; ++set) {
    for (std::size_t end = 0; end < nodes; ++end) {
      if (best[set][end] == kNoPath) continue;
      for (std::size_t next = 0; next < nodes; ++next) {
        if ((set >> next) & 1U) continue;
        const std::size_t with = set | (std::size_t{1} << next);
        const double cost = join(best[set][end], costs[end][next]);
        if (cost < best[with][next]) {
          best[with][next] = cost;
          before[with][next] = static_cast<int>(end);
        }
      }
    }
  }
  int end = last;
  for (std::size_t node = 0; node < nodes && last < 0; ++node)
    if (end < 0 || best[all][node] < best[all][index_of(end)]) end = static_cast<int>(node);
  if (best[all][index_of(end)] == kNoPath) return {};
  std::vector<int> path;
  for (std::size_t set = all; end >= 0;) {
    path.push_back(end);
    const int previous = before[set][index_of(end)];
    set &= ~(std::size_t{1} << index_of(end));
    end = previous;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

struct Width {
  double narrowest = kNoPath;
  double distance = 0;
};
Width width_of(const Weights& weights, const std::vector<int>& path) {
  Width width;
  for (std::size_t i = 1; i < path.size(); ++i) {
    const double weight = weights[index_of(path[i - 1])][index_of(path[i])];
    width.narrowest = std::min(width.narrowest, weight);
    width.distance += 1 / weight;
  }
  return width;
}

bool is_wider(const Width& a, const Width& b) {
  return a.narrowest > b.narrowest || (a.narrowest == b.narrowest && a.distance < b.distance);
}

std::vector<int> exact_chain(const Weights& weights, int first, int last) {
  Weights costs = weights;
  for (std::vector<double>& row : costs)
    for (double& cost : row) cost = 1 / cost;  // infinite without weight
  const std::vector<int> widest = best_path(costs, first, last, true);
  if (widest.empty()) return {};
  const double narrowest = width_of(weights, widest).narrowest;
  for (std::size_t i = 0; i < costs.size(); ++i)
    for (std::size_t j = 0; j < costs.size(); ++j)
      if (weights[i][j] < narrowest) costs[i][j] = kNoPath;
  return best_path(costs, first, last, false);
}

std::vector<int> greedy_chain(const Weights& weights, int first, int last) {
  std::vector<int> best;
  for (int start = 0; start < std::ssize(weights); ++start) {
    if (first >= 0 ? start != first : start == last) continue;
    std::vector<int> path{start};
    std::vector<bool> passed(weights.size());
    passed[index_of(start)] = true;
    while (path.size() < weights.size()) {
      const std::vector<double>& from = weights[index_of(path.back())];
      int next = -1;
      for (int node = 0; node < std::ssize(weights); ++node) {
        const bool too_early = node == last && path.size() + 1 < weights.size();
        if (passed[index_of(node)] || too_early) continue;
        if (next < 0 || from[index_of(node)] > from[index_of(next)]) next = node;
      }
      passed[index_of(next)] = true;
      path.push_back(next);
    }
    const Width now = width_of(weights, path), known = width_of(weights, best);
    if (best.empty() || is_wider(now, known)) best = path;
  }
  return best;
}

// The pair of nodes with the best link between two communities, but for those taken where there are others.
struct Gate {
  int from = -1, to = -1;
};
Gate gate_of(const Weights& weights, const std::vector<int>& from, const std::vector<int>& to,
             int taken_from = -1, int taken_to = -1) {
  Gate gate;
  for (const int i : from) {
    if (i == taken_from && from.size() > 1) continue;
    for (const int j : to) {
      if (j == taken_to && to.size() > 1) continue;
      if (gate.from < 0 ||
          weights[index_of(i)][index_of(j)] > weights[index_of(gate.from)][index_of(gate.to)])
        gate = {.from = i, .to = j};
    }
  }
  return gate;
}

int index_in(const std::vector<int>& nodes, int node) {
  return node < 0 ? -1 : static_cast<int>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
}

// Weights of the best links between communities.
Weights best_links(const Weights& weights, const Communities& communities) {
  Weights between(communities.size(), std::vector<double>(communities.size()));
  for (std::size_t a = 0; a < communities.size(); ++a) {
    for (std::size_t b = 0; b < communities.size(); ++b) {
      if (a == b) continue;
      const Gate gate = gate_of(weights, communities[a], communities[b]);
      between[a][b] = weights[index_of(gate.from)][index_of(gate.to)];
    }
  }
  return between;
}

// The communities in this order, and the devices of each as its gates to its neighbours ask for. `closing` is
// the gate from the last community to the first, if there is one.
Communities passed(const Weights& weights, const Communities& communities, const std::vector<int>& order,
                   const Gate& closing) {
  Communities ordered;
  for (const int which : order) ordered.push_back(communities[index_of(which)]);
  int first = closing.to;
  for (std::size_t c = 0; c < ordered.size(); ++c) {
    std::vector<int>& devices = ordered[c];
    Gate gate = closing;
    if (c + 1 < ordered.size())
      gate = gate_of(weights, devices, ordered[c + 1], first, c + 2 == ordered.size() ? closing.from : -1);
    Weights inside(devices.size(), std::vector<double>(devices.size()));
    for (std::size_t i = 0; i < devices.size(); ++i)
      for (std::size_t j = 0; j < devices.size(); ++j)
        inside[i][j] = weights[index_of(devices[i])][index_of(devices[j])];
    std::vector<int> chain;
    for (const int place : widest_chain(inside, index_in(devices, first), index_in(devices, gate.from)))
      chain.push_back(devices[index_of(place)]);
    devices = std::move(chain);
    first = gate.to;
  }
  return ordered;
}

// widest_chain() from node 0 whose ends, joined, leave the smallest weight the greatest, and then the least
// distance.
std::vector<int> widest_ring(const Weights& weights) {
  std::vector<int> best;
  Width width;
  for (int last = 0; last < std::ssize(weights); ++last) {
    if (last == 0 && weights.size() > 1) continue;
    std::vector<int> chain = widest_chain(weights, 0, last);
    std::vector<int> closed = chain;
    if (chain.size() > 1) closed.push_back(0);
    const Width now = width_of(weights, closed);
    if (!best.empty() && !is_wider(now, width)) continue;
    best = std::move(chain);
    width = now;
  }
  return best;
}

}  // namespace

Weights bandwidths(const PairCluster& cluster) {
  Weights weights = cluster.bytes_per_second;
  for (std::size_t i = 0; i < weights.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      weights[i][j] = weights[j][i] = std::min(weights[i][j], weights[j][i]);
  return weights;
}

double modularity(const Weights& weights, const std::vector<int>& community) {
  double all = 0, inside = 0;
  std::vector<double> total(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double of_node = degree(weights, i);
    all += of_node;
    total[index_of(community[i])] += of_node;
    for (std::size_t j = 0; j < weights.size(); ++j)
      if (community[i] == community[j]) inside += weights[i][j];
  }
  if (all <= 0) return 0;
  double expected = 0;
  for (const double of_community : total) expected += of_community / all * (of_community / all);
  return inside / all - expected;
}

std::vector<int> louvain(const Weights& weights) {
  constexpr int kOrders = 16;
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(1);
  std::vector<int> best;
  for (int attempt = 0; attempt < kOrders; ++attempt) {
    std::vector<int> found = louvain_from(weights, order);
    if (best.empty() || modularity(weights, found) > modularity(weights, best) + kGain)
      best = std::move(found);
    for (std::size_t i = order.size(); i > 1; --i)  // std::shuffle differs between libraries
      std::swap(order[i - 1], order[static_cast<std::size_t>(random() % i)]);
  }
  return best;
}

std::vector<int> widest_chain(const Weights& weights, int first, int last) {
  std::vector<int> chain;
  if (weights.size() <= kExact) chain = exact_chain(weights, first, last);
  if (chain.empty()) chain = greedy_chain(weights, first, last);
  const bool either_way = first < 0 && last < 0;
  if (either_way && chain.front() > chain.back()) std::reverse(chain.begin(), chain.end());
  return chain;
}

std::vector<std::vector<int>> ordered_communities(const PairCluster& cluster) {
  const Weights weights = bandwidths(cluster);
  const std::vector<int> community = louvain(weights);
  std::vector<std::vector<int>> listed(count_of(community));
  for (std::size_t device = 0; device < community.size(); ++device)
    listed[index_of(community[device])].push_back(static_cast<int>(device));

  return passed(weights, listed, widest_chain(best_links(weights, listed)), {});
}

std::vector<std::vector<std::vector<int>>> opened_rings(const PairCluster& cluster,
                                                        const std::vector<std::vector<int>>& communities) {
  constexpr std::size_t kMost = 32;
  const Weights weights = bandwidths(cluster);
  const std::vector<int> order = widest_ring(best_links(weights, communities));
  Gate closing;
  if (order.size() > 1)
    closing = gate_of(weights, communities[index_of(order.back())], communities[index_of(order.front())]);
  const Communities ring = passed(weights, communities, order, closing);
  struct Opening {
    std::size_t community = 0, device = 0;  // the first device of the chain
    double weight = 0;
  };
  std::vector<Opening> openings;
  int before = ring.back().back();
  std::size_t devices = 0;
  for (std::size_t c = 0; c < ring.size(); ++c) {
    for (std::size_t d = 0; d < ring[c].size(); ++d) {
      openings.push_back(
          {.community = c, .device = d, .weight = weights[index_of(before)][index_of(ring[c][d])]});
      before = ring[c][d];
      ++devices;
    }
  }
  if (devices < 3) return {};
  std::stable_sort(openings.begin(), openings.end(),
                   [](const Opening& a, const Opening& b) { return a.weight > b.weight; });
  openings.resize(std::min(openings.size(), kMost));

  std::vector<Communities> opened;
  for (const Opening& opening : openings) {
    const auto cut = ring[opening.community].begin() + static_cast<std::ptrdiff_t>(opening.device);
    Communities chain{{cut, ring[opening.community].end()}};
    for (std::size_t next = 1; next < ring.size(); ++next)
      chain.push_back(ring[(opening.community + next) % ring.size()]);
    if (opening.device > 0) chain.emplace_back(ring[opening.community].begin(), cut);
    opened.push_back(chain);
    std::reverse(chain.begin(), chain.end());
    for (std::vector<int>& part : chain) std::reverse(part.begin(), part.end());
    opened.push_back(std::move(chain));
  }
  return opened;
}

}  // namespace dear::methods::pipeline
