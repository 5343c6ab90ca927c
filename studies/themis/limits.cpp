#include "studies/themis/limits.h"

#include "studies/report/draw.h"
#include <algorithm>
#include <cmath>
#include <limits>

#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/chunk_planner.h"

namespace dear::studies::themis {
namespace {

using cost::ChunkNetwork;

Cluster random_cluster(studies::Draw& draw, int dimensions, int most_members, double octaves) {
  Cluster cluster{.name = "random", .dimensions = {}};
  int ranks = 1;
  for (int dimension = 0; dimension < dimensions; ++dimension) {
    const int size = draw.from_to(2, most_members);
    cluster.dimensions.push_back({.name = "dimension",
                                  .size = size,
                                  .link = {.beta_seconds_per_byte = 1e-9 * std::exp2(-octaves * draw.part())},
                                  .links = ranks,
                                  .beside = true});
    ranks *= size;
  }
  return cluster;
}

cost::PlannedChunks planned(const ChunkNetwork& network, std::string_view algorithm, std::int64_t bytes,
                            int chunks) {
  return cost::make_chunk_plan(network, Collective::all_reduce, bytes,
                               {.algorithm = std::string(algorithm), .chunks = chunks});
}

double best_baseline(const ChunkNetwork& network, std::int64_t bytes, int most) {
  double best = std::numeric_limits<double>::infinity();
  for (int chunks = 1; chunks <= most; chunks *= 2) {
    best = std::min(best, planned(network, "baseline", bytes, chunks).seconds);
  }
  return best;
}

}  // namespace

std::vector<RandomOutcome> on_random_networks(const RandomOptions& options) {
  std::vector<RandomOutcome> outcomes;
  for (const cost::ChunkPlanner& planner : cost::chunk_planners()) {
    if (planner.name == "baseline") continue;
    outcomes.push_back(
        {.algorithm = std::string(planner.name), .worst = std::numeric_limits<double>::infinity()});
  }
  studies::Draw draw(options.seed);
  for (int i = 0; i < options.networks; ++i) {
    const ChunkNetwork network = cost::chunk_network(random_cluster(draw, draw.from_to(2, 4), 16, 5));
    const int chunks = 4 << draw.from_to(0, 4);
    const double baseline = planned(network, "baseline", options.bytes, chunks).seconds;
    const double ideal = cost::ideal_seconds(network, Collective::all_reduce, options.bytes);
    for (RandomOutcome& outcome : outcomes) {
      const double seconds = planned(network, outcome.algorithm, options.bytes, chunks).seconds;
      outcome.gain += baseline / seconds / options.networks;
      outcome.worst = std::min(outcome.worst, baseline / seconds);
      outcome.slower += seconds > 1.02 * baseline ? 1 : 0;
      outcome.utilisation += ideal / seconds / options.networks;
    }
  }
  return outcomes;
}

std::vector<OptimumOutcome> beside_the_optimum(const OptimumOptions& options) {
  std::vector<OptimumOutcome> all;
  constexpr std::int64_t kBytes = 1 << 24;
  for (const int chunks : options.chunks) {
    std::vector<OptimumOutcome> outcomes;
    for (const cost::ChunkPlanner& planner : cost::chunk_planners())
      outcomes.push_back({.algorithm = std::string(planner.name), .chunks = chunks});
    studies::Draw draw(options.seed);
    for (int i = 0; i < options.networks; ++i) {
      const ChunkNetwork network = cost::chunk_network(random_cluster(draw, 2, 4, 3));
      const auto best =
          cost::best_chunk_plan(network, Collective::all_reduce, kBytes, chunks, options.most_steps);
      if (!best) continue;
      for (OptimumOutcome& outcome : outcomes) {
        const double longer = planned(network, outcome.algorithm, kBytes, chunks).seconds / best->seconds;
        ++outcome.networks;
        outcome.longer += longer;
        outcome.most_longer = std::max(outcome.most_longer, longer);
        outcome.reached += longer < 1 + 1e-9 ? 1 : 0;
      }
    }
    for (OptimumOutcome& outcome : outcomes) {
      if (outcome.networks > 0) outcome.longer /= outcome.networks;
      all.push_back(outcome);
    }
  }
  return all;
}

std::vector<SizeOutcome> by_size(const std::vector<Cluster>& networks, const SizeOptions& options) {
  std::vector<SizeOutcome> all;
  for (const cost::ChunkPlanner& planner : cost::chunk_planners()) {
    for (const std::int64_t bytes : options.bytes) {
      SizeOutcome outcome{.algorithm = std::string(planner.name), .bytes = bytes};
      for (Cluster network : networks) {
        for (Dimension& dimension : network.dimensions) {
          const bool inside = &dimension == &network.dimensions.front();
          dimension.link.alpha_seconds = inside ? options.start_up_inside : options.start_up_outside;
        }
        const ChunkNetwork chunked = cost::chunk_network(network);
        outcome.gain += std::log(best_baseline(chunked, bytes, options.chunks) /
                                 planned(chunked, planner.name, bytes, options.chunks).seconds) /
                        static_cast<double>(networks.size());
      }
      outcome.gain = std::exp(outcome.gain);
      all.push_back(outcome);
    }
  }
  return all;
}

std::vector<PresetOutcome> on_presets(const std::vector<std::int64_t>& sizes) {
  std::vector<PresetOutcome> all;
  for (const ClusterPreset& preset : clusters()) {
    const Cluster& cluster = preset.cluster;
    if (cluster.dimensions.size() < 2 || cluster.name.starts_with("themis-")) continue;
    const ChunkNetwork network = cost::chunk_network(cluster);
    const double launch = cost::launch_beyond_start_ups(network, Collective::all_reduce);
    for (const std::int64_t bytes : sizes) {
      const cost::PlannedChunks best = planned(network, "themis", bytes, 64);
      const double seconds = launch + best.seconds;
      all.push_back({.cluster = cluster.name,
                     .bytes = bytes,
                     .one_chunk_seconds = launch + planned(network, "baseline", bytes, 1).seconds,
                     .baseline_seconds = launch + best_baseline(network, bytes, 64),
                     .seconds = seconds,
                     .utilisation = cost::ideal_seconds(network, Collective::all_reduce, bytes) / seconds,
                     .plan = best.plan.name,
                     .chunks = best.plan.chunks()});
    }
  }
  return all;
}

}  // namespace dear::studies::themis
