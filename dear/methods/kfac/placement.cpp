#include "dear/methods/kfac/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::methods::kfac {
namespace {

void require_ranks(int ranks) {
  if (ranks < 1)
    throw ConfigError(fmt::format("inverses cannot be placed on {} ranks: give at least 1", ranks));
}

std::vector<double> seconds_of(const std::vector<Factor>& factors, const PlacementCosts& costs) {
  std::vector<double> seconds;
  for (const Factor& factor : factors) seconds.push_back(costs.invert(factor.dimension));
  return seconds;
}

std::vector<FactorId> longest_first(const std::vector<double>& seconds) {
  std::vector<FactorId> order(seconds.size());
  std::iota(order.begin(), order.end(), FactorId{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](FactorId a, FactorId b) { return seconds[a] > seconds[b]; });
  return order;
}

// Ranks that get inverses, the longest first, each the one with the least load.
class Loads {
 public:
  Loads(const std::vector<Factor>& factors, int ranks, const PlacementCosts& costs)
      : seconds_(methods::kfac::seconds_of(factors, costs)),
        loads_(std::min(index_of(ranks), std::max<std::size_t>(factors.size(), 1))) {}
  [[nodiscard]] std::vector<FactorId> longest_first() const { return methods::kfac::longest_first(seconds_); }
  [[nodiscard]] double seconds_of(FactorId factor) const { return seconds_[factor]; }
  int give_away(FactorId factor) {
    const auto least = std::min_element(loads_.begin(), loads_.end());
    *least += seconds_[factor];
    return static_cast<int>(least - loads_.begin());
  }

 private:
  std::vector<double> seconds_, loads_;
};

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
  Loads loads(factors, ranks, costs);
  for (const FactorId factor : loads.longest_first())
    if (loads.seconds_of(factor) > costs.distribute(factors[factor].packed_elements()))
      placement[factor] = loads.give_away(factor);
  return placement;
}

Placement fastest_phase(const std::vector<Factor>& factors, int ranks, const PlacementCosts& costs) {
  require_ranks(ranks);
  if (ranks == 1) return all_local(factors.size());
  Placement placement(factors.size()), best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const Placement& one) {
    const double seconds = inverse_phase(factors, one, ranks, costs).finish_seconds;
    if (seconds >= least) return;
    least = seconds;
    best = one;
  };
  consider(placement);
  Loads loads(factors, ranks, costs);
  for (const FactorId factor : loads.longest_first()) {
    placement[factor] = loads.give_away(factor);
    consider(placement);
  }
  consider(round_robin(factors.size(), ranks));
  return best;
}

std::vector<Placement> placements_to_play(const std::vector<Factor>& factors, int ranks,
                                          const PlacementCosts& costs) {
  if (ranks == 1) return {all_local(factors.size())};
  std::vector<Placement> all;
  for (Placement& one : std::vector{balanced(factors, ranks, costs), fastest_phase(factors, ranks, costs),
                                    all_local(factors.size()), round_robin(factors.size(), ranks)})
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(std::move(one));
  return all;
}

std::vector<FactorId> inverse_order(const std::vector<Factor>& factors, const Placement& placement,
                                    const PlacementCosts& costs) {
  std::vector<FactorId> order = longest_first(seconds_of(factors, costs));
  std::stable_partition(order.begin(), order.end(),
                        [&](FactorId factor) { return placement[factor].has_value(); });
  return order;
}

InversePhase inverse_phase(const std::vector<Factor>& factors, const Placement& placement, int ranks,
                           const PlacementCosts& costs) {
  require_ranks(ranks);
  if (placement.size() != factors.size())
    throw ConfigError(fmt::format("{} factors have a placement of {}", factors.size(), placement.size()));
  std::vector<double> load(index_of(ranks));
  double network = 0, local = 0;  // what every rank inverts comes last
  InversePhase phase;
  for (const FactorId factor : inverse_order(factors, placement, costs)) {
    const double seconds = costs.invert(factors[factor].dimension);
    if (!placement[factor]) {
      local += seconds;
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
  phase.compute_seconds = *std::max_element(load.begin(), load.end()) + local;
  phase.finish_seconds = std::max(network, phase.compute_seconds);
  return phase;
}

}  // namespace dear::methods::kfac
