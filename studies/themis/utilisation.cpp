#include "studies/themis/utilisation.h"

#include <algorithm>

#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/predict/sim/collective.h"

namespace dear::studies::themis {

std::vector<Cluster> evaluated_networks() {
  std::vector<Cluster> networks;
  for (const ClusterPreset& preset : clusters()) {
    if (preset.cluster.name.starts_with("themis-")) networks.push_back(preset.cluster);
  }
  return networks;
}

std::vector<Use> uses_of(const std::vector<Cluster>& networks, const UtilisationOptions& options) {
  std::vector<Use> uses;
  for (const Cluster& network : networks) {
    double baseline = 0;
    for (const cost::ChunkPlanner& planner : cost::chunk_planners()) {
      const sim::CollectiveRun run = sim::run_collective(
          network, {.bytes = options.bytes, .chunks = options.chunks}, std::string(planner.name));
      if (planner.name == "baseline") baseline = run.seconds;
      Use use{.cluster = network.name,
              .algorithm = run.algorithm,
              .seconds = run.seconds,
              .utilisation = run.utilisation,
              .gain = baseline / run.seconds};
      for (const sim::DimensionUse& dimension : run.dimensions)
        use.by_dimension.push_back(dimension.utilisation);
      uses.push_back(std::move(use));
    }
  }
  return uses;
}

OverNetworks over_networks(const std::vector<Use>& uses, const std::string& algorithm, double Use::* member) {
  OverNetworks over;
  int networks = 0;
  for (const Use& use : uses) {
    if (use.algorithm != algorithm) continue;
    over.mean += use.*member;
    over.largest = std::max(over.largest, use.*member);
    ++networks;
  }
  if (networks > 0) over.mean /= networks;
  return over;
}

}  // namespace dear::studies::themis
