#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "dear/methods/kfac/factor.h"

// Placement decides which rank inverts which factor.
namespace dear::methods::kfac {

// By factor: the rank that inverts it and sends the inverse to all others; none where every rank inverts it
// for itself and nothing is sent.
using Placement = std::vector<std::optional<int>>;

struct PlacementCosts {
  std::function<double(std::int64_t dimension)> invert;            // seconds on one rank
  std::function<double(std::int64_t packed_elements)> distribute;  // seconds of a broadcast to all ranks
};

Placement all_local(std::size_t factors);
// Dealt out in the order of the factors (MPD-KFAC: Pauloski et al. 2020, arXiv 2007.00784).
Placement round_robin(std::size_t factors, int ranks);
// Shi et al. 2021 (arXiv 2107.06533, load balancing placement): every rank inverts for itself where that
// takes no longer than to send the inverse; all others go, by descending time, to the rank with the least
// load (longest processing time first, Graham 1969, doi:10.1137/0117039: at most 4/3 - 1/(3 ranks) times the
// best load).
Placement balanced(const std::vector<Factor>& factors, int ranks, const PlacementCosts& costs);
// The phase below ends first: of all_local(), of balanced() with as many inverses sent as pays, the longest,
// and of round_robin(). Broadcasts travel one after another: what pays by itself may not pay beside others.
Placement fastest_phase(const std::vector<Factor>& factors, int ranks, const PlacementCosts& costs);
// Placements to play where the fastest iteration is wanted: all of these, each once. Any of them may
// be the fastest.
std::vector<Placement> placements_to_play(const std::vector<Factor>& factors, int ranks,
                                          const PlacementCosts& costs);

// Seconds of inverting: the load of the busiest rank. And of sending: all broadcasts, one after another.
struct InversePhase {
  double compute_seconds = 0;
  double communicate_seconds = 0;
  // Until every rank has every inverse, where a rank inverts what it sends first, the largest first, and a
  // broadcast begins when its inverse is there and the one before is done.
  double finish_seconds = 0;
};
InversePhase inverse_phase(const std::vector<Factor>& factors, const Placement& placement, int ranks,
                           const PlacementCosts& costs);

// The order in which a rank inverts, and in which all ranks send: first what is sent, by descending time.
std::vector<FactorId> inverse_order(const std::vector<Factor>& factors, const Placement& placement,
                                    const PlacementCosts& costs);

}  // namespace dear::methods::kfac
