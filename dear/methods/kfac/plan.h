#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/methods/kfac/costs.h"
#include "dear/methods/kfac/factor.h"
#include "dear/methods/kfac/fusion.h"
#include "dear/methods/kfac/placement.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/workload/layers/workload.h"

namespace dear::methods::kfac {

// The curvature of a layer of a workload: the shape of its weight, and the seconds that one rank takes to
// compute its two factors from the samples of one pass.
struct LayerCurvature {
  std::int64_t inputs = 0, outputs = 0;  // see LayerShape
  double input_factor_seconds = 0, output_factor_seconds = 0;
  double precondition_seconds = 0;  // two products of matrices with the gradient
};

// A training job with K-FAC. Layers without curvature (norms, embeddings) keep their plain gradients.
struct Job {
  Workload workload;
  std::vector<std::optional<LayerCurvature>> curvature;  // by layer
  [[nodiscard]] std::vector<Factor> factors()
      const;  // as factors_of() orders them; layers are the workload's
};

struct Costs {
  int ranks = 1;
  LinearCost all_reduce, reduce, broadcast;  // of fp32 elements, among all ranks
  InverseCost invert = InverseCost::cubic(0, 0);
  // A rank that gets a packed factor takes its sums into the running average, or unpacks an inverse that
  // another rank made: seconds by elements.
  LinearCost average{}, unpack{};
  Interference interference{};  // between what a rank computes and what travels meanwhile
};

// How often curvature is renewed; in between the inverses of before are used.
struct Intervals {
  std::uint32_t factors = 1;   // iterations
  std::uint32_t inverses = 1;  // a multiple of `factors`
  friend bool operator==(const Intervals&, const Intervals&) = default;
};
// ConfigError for intervals of 0, or an interval of inverses that is no multiple of that of factors.
void check(const Intervals& intervals);

// When factors travel, in which groups, and who inverts them.
enum class Travel : std::uint8_t {
  after_backward,  // all of them, before the first inverse
  as_ready         // each group as soon as its last factor is there, under the rest of the passes
};
enum class FusionRule : std::uint8_t { alone, threshold, by_rule, exact, together };
// `planned`: the fastest of placements_to_play(), by mean_iteration_seconds() with each; of those that are as
// fast, the one whose inverses by themselves end first.
enum class PlacementRule : std::uint8_t { all_local, round_robin, balanced, planned };
// When inverses are sent: each as soon as it is there, or all of them after the last inverse.
enum class Sending : std::uint8_t { as_inverted, after_inverses };

struct Strategy {
  std::string name;
  Travel travel = Travel::as_ready;
  FusionRule fusion = FusionRule::by_rule;
  PlacementRule placement = PlacementRule::planned;
  // A factor whose inverse one rank sends to all others is reduced to that rank alone.
  bool reduce_to_owner = false;
  std::int64_t threshold_elements = std::int64_t{16} << 20;  // for FusionRule::threshold, and cycles
  // A layer below fuses groups once more: those that become ready in one cycle of these seconds (by_cycle()).
  // 0: there is no such layer.
  double cycle_seconds = 0;
  Sending sending = Sending::as_inverted;
};

// "d-kfac", "mpd-kfac" and "spd-kfac" of Shi et al. 2021 (arXiv 2107.06533), and the last two with
// "-owner": factors are reduced to who inverts them.
const std::vector<Strategy>& strategies();
const Strategy& find_strategy(std::string_view name);  // ConfigError that lists them

// A plan is made on one rank, of averaged measurements, and is the same on all.
struct Plan {
  std::string strategy;
  Travel travel = Travel::as_ready;
  bool reduce_to_owner = false;
  std::vector<Factor> factors;
  // Factors that travel together: of A in forward order, of G in backward order. Each group has one
  // destination: all ranks, or the one that inverts its factors.
  struct Group {
    std::vector<FactorId> factors;  // ascending
    std::int64_t elements = 0;
    std::optional<int> owner;  // the only rank that gets the sums
  };
  std::vector<Group> groups;  // in the order in which their last factors are ready
  Placement placement;        // by factor
  Sending sending = Sending::as_inverted;
  // In this order on every rank: by group, within a group as inverse_order() has it.
  std::vector<FactorId> inversions;

  [[nodiscard]] std::uint64_t digest() const;  // ranks may train together only if it is the same
};
// The buckets of gradients where nobody names others.
inline constexpr std::int64_t kGradientBucketBytes = std::int64_t{25} << 20;

// Returns the costs by which placements are chosen.
PlacementCosts placement_costs(const Costs& costs);

// ConfigError for a job whose curvature is not one entry a layer, without any factor, or a cost that is
// negative.
//
// Placements are played beside gradients in the buckets of `grouping`; without one in buckets of
// kGradientBucketBytes. Where the workload has no tensors, each layer with curvature is taken to have one in
// fp32, its weight with the bias: what trains knows layers, and comes to the plan of a job with their
// tensors.
Plan make_plan(const Job& job, const Costs& costs, const Strategy& strategy, const Grouping& grouping,
               const Intervals& intervals = {});
Plan make_plan(const Job& job, const Costs& costs, const Strategy& strategy, const Intervals& intervals = {});

}  // namespace dear::methods::kfac
