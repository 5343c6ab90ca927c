#include "dear/kfac/placement.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/ids.h"

namespace dear::kfac {
namespace {

void require_ranks(int ranks) {
  if (ranks < 1)
    throw ConfigError(fmt::format("inverses cannot be placed on {} ranks: give at least 1", ranks));
}

}  // namespace

Placement all_local(std::size_t factors) { return Placement(factors); }

Placement round_robin(std::size_t factors, int ranks) {
  require_ranks(ranks);
  Placement placement(factors);
  for (std::size_t i = 0; i < factors; ++i) placement[i] = static_cast<int>(i % index_of(ranks));
  return placement;
}

Placement balanced(const std::vector<Factor>& factors, int ranks, const PlacementCosts& costs) {
  require_ranks(ranks);
  Placement placement(factors.size());
  if (ranks == 1) return placement;
  std::vector<double> seconds;
  for (const Factor& factor : factors) seconds.push_back(costs.invert(factor.dimension));
  std::vector<FactorId> order(factors.size());
  std::iota(order.begin(), order.end(), FactorId{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](FactorId a, FactorId b) { return seconds[a] > seconds[b]; });
  std::vector<double> load(index_of(ranks));
  for (const FactorId factor : order) {
    if (seconds[factor] <= costs.distribute(factors[factor].packed_elements())) continue;
    const auto least = std::min_element(load.begin(), load.end());
    *least += seconds[factor];
    placement[factor] = static_cast<int>(least - load.begin());
  }
  return placement;
}

std::vector<FactorId> inverse_order(const std::vector<Factor>& factors, const Placement& placement,
                                    const PlacementCosts& costs) {
  std::vector<FactorId> order(factors.size());
  std::iota(order.begin(), order.end(), FactorId{0});
  std::stable_sort(order.begin(), order.end(), [&](FactorId a, FactorId b) {
    if (placement[a].has_value() != placement[b].has_value()) return placement[a].has_value();
    return costs.invert(factors[a].dimension) > costs.invert(factors[b].dimension);
  });
  return order;
}

InversePhase inverse_phase(const std::vector<Factor>& factors, const Placement& placement, int ranks,
                           const PlacementCosts& costs) {
  require_ranks(ranks);
  if (placement.size() != factors.size())
    throw ConfigError(fmt::format("{} factors have a placement of {}", factors.size(), placement.size()));
  std::vector<double> load(index_of(ranks));
  double network = 0;
  InversePhase phase;
  for (const FactorId factor : inverse_order(factors, placement, costs)) {
    const double seconds = costs.invert(factors[factor].dimension);
    if (!placement[factor]) {
      for (double& busy : load) busy += seconds;
      continue;
    }
    if (*placement[factor] < 0 || *placement[factor] >= ranks)
      throw ConfigError(
          fmt::format("factor {} is placed on rank {} of {}", factor, *placement[factor], ranks));
    double& busy = load[index_of(*placement[factor])];
    busy += seconds;
    const double sending = costs.distribute(factors[factor].packed_elements());
    phase.communicate_seconds += sending;
    network = std::max(network, busy) + sending;
  }
  phase.compute_seconds = *std::max_element(load.begin(), load.end());
  phase.finish_seconds = std::max(network, phase.compute_seconds);
  return phase;
}

}  // namespace dear::kfac
