#include "dear/methods/kfac/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/kfac/predict.h"

namespace dear::methods::kfac {
namespace {

constexpr double kTie = 1e-9;  // of two times, which differ by rounding alone

void validate(const Job& job, const Costs& costs) {
  if (job.curvature.size() != job.workload.layers.size())
    throw ConfigError(fmt::format("a job of {} layers has the curvature of {}: give one entry a layer",
                                  job.workload.layers.size(), job.curvature.size()));
  if (job.factors().empty()) throw ConfigError("K-FAC needs a layer with curvature: the job has none");
  if (costs.ranks < 1)
    throw ConfigError(fmt::format("K-FAC cannot run on {} ranks: give at least 1", costs.ranks));
  for (const LinearCost& cost : {costs.all_reduce, costs.reduce, costs.broadcast})
    if (!(cost.start_seconds >= 0) || !(cost.seconds_per_element >= 0))
      throw ConfigError(
          "the cost of a collective is negative: start-up and seconds per element are at least 0");
}

// When each factor is ready, from the one before it in its direction: A just before the forward of its layer,
// G just after its backward.
std::vector<ReadyFactor> readiness(const Job& job, const std::vector<Factor>& factors, Side side) {
  std::vector<ReadyFactor> ready;
  const std::size_t layers = job.workload.layers.size();
  double waited = 0;
  for (std::size_t i = 0; i < layers; ++i) {
    const std::size_t at = side == Side::input ? i : layers - 1 - i;
    const Layer& layer = job.workload.layers[at];
    const std::optional<LayerCurvature>& curvature = job.curvature[at];
    if (side == Side::output) waited += layer.backward_seconds;
    if (curvature) {
      waited += side == Side::input ? curvature->input_factor_seconds : curvature->output_factor_seconds;
      const auto factor = std::find_if(factors.begin(), factors.end(), [&](const Factor& candidate) {
        return candidate.layer == at && candidate.side == side;
      });
      ready.push_back({factor->packed_elements(), waited});
      waited = 0;
    }
    if (side == Side::input) waited += layer.forward_seconds;
  }
  return ready;
}

Groups fuse(const std::vector<ReadyFactor>& ready, const Strategy& strategy, const LinearCost& cost) {
  switch (strategy.fusion) {
    case FusionRule::alone:
      return each_alone(ready.size());
    case FusionRule::threshold:
      return by_threshold(ready, strategy.threshold_elements);
    case FusionRule::by_rule:
      return fuse_by_rule(ready, cost);
    case FusionRule::exact:
      return fuse_exactly(ready, cost);
    case FusionRule::together:
      break;
  }
  return all_together(ready.size());
}

// Groups of groups: what the layer below takes as one.
Groups fuse_in_cycles(const std::vector<ReadyFactor>& ready, const Groups& groups, const Strategy& strategy) {
  std::vector<ReadyFactor> whole;
  std::size_t factor = 0;
  for (const std::size_t size : groups) {
    ReadyFactor& group = whole.emplace_back();
    for (const std::size_t end = factor + size; factor < end; ++factor) {
      group.elements += ready[factor].elements;
      group.seconds_until_ready += ready[factor].seconds_until_ready;
    }
  }
  Groups fused;
  std::size_t group = 0;
  for (const std::size_t size : by_cycle(whole, strategy.cycle_seconds, strategy.threshold_elements)) {
    fused.push_back(0);
    for (const std::size_t end = group + size; group < end; ++group) fused.back() += groups[group];
  }
  return fused;
}

std::vector<Placement> placements(const std::vector<Factor>& factors, int ranks, PlacementRule rule,
                                  const PlacementCosts& costs) {
  switch (rule) {
    case PlacementRule::all_local:
      return {all_local(factors.size())};
    case PlacementRule::round_robin:
      return {ranks == 1 ? all_local(factors.size()) : round_robin(factors.size(), ranks)};
    case PlacementRule::balanced:
      return {balanced(factors, ranks, costs)};
    case PlacementRule::planned:
      break;
  }
  return placements_to_play(factors, ranks, costs);
}

// The groups of all factors, each direction by itself.
Groups groups_of(const Job& job, const std::vector<Factor>& factors, const Strategy& strategy,
                 const LinearCost& cost) {
  Groups all;
  for (const Side side : {Side::input, Side::output}) {
    const std::vector<ReadyFactor> ready = readiness(job, factors, side);
    Groups groups = fuse(ready, strategy, cost);
    if (strategy.cycle_seconds > 0) groups = fuse_in_cycles(ready, groups, strategy);
    all.insert(all.end(), groups.begin(), groups.end());
  }
  return all;
}

// Adds groups of these sizes of all factors, in order.
void add_groups(Plan& plan, const Groups& sizes) {
  std::size_t first = 0;
  for (const std::size_t size : sizes) {
    Plan::Group group;
    for (std::size_t i = 0; i < size; ++i, ++first) {
      group.factors.push_back(static_cast<FactorId>(first));
      group.elements += plan.factors[first].packed_elements();
    }
    plan.groups.push_back(std::move(group));
  }
}

// Every group by destination: factors that are reduced to one rank do not travel with those of another.
void split_by_owner(Plan& plan) {
  std::vector<Plan::Group> split;
  for (const Plan::Group& group : plan.groups) {
    std::map<int, Plan::Group> of_owner;  // -1: all ranks
    for (const FactorId factor : group.factors) {
      Plan::Group& part = of_owner[plan.placement[factor].value_or(-1)];
      part.factors.push_back(factor);
      part.elements += plan.factors[factor].packed_elements();
      part.owner = plan.placement[factor];
    }
    for (auto& [owner, part] : of_owner) split.push_back(std::move(part));
  }
  std::stable_sort(split.begin(), split.end(), [](const Plan::Group& a, const Plan::Group& b) {
    return a.factors.back() < b.factors.back();
  });
  plan.groups = std::move(split);
}

// Returns the same order, but for those whose sums come in an earlier group: they go first, so that no rank
// waits for a sum while another is there.
std::vector<FactorId> as_they_come(const Plan& plan, std::vector<FactorId> order) {
  std::vector<std::size_t> group_of(plan.factors.size());
  for (std::size_t group = 0; group < plan.groups.size(); ++group)
    for (const FactorId factor : plan.groups[group].factors) group_of[factor] = group;
  std::stable_sort(order.begin(), order.end(),
                   [&](FactorId a, FactorId b) { return group_of[a] < group_of[b]; });
  return order;
}

Plan plan_with(const Job& job, const Costs& costs, const Strategy& strategy, Placement placement,
               const PlacementCosts& by) {
  Plan plan{.strategy = strategy.name,
            .travel = strategy.travel,
            .reduce_to_owner = strategy.reduce_to_owner,
            .factors = job.factors(),
            .groups = {},
            .placement = std::move(placement),
            .sending = strategy.sending,
            .inversions = {}};
  if (strategy.travel == Travel::after_backward && strategy.fusion == FusionRule::together) {
    add_groups(plan, all_together(plan.factors.size()));
  } else {
    add_groups(plan, groups_of(job, plan.factors, strategy, costs.all_reduce));
  }
  if (strategy.reduce_to_owner) split_by_owner(plan);
  plan.inversions = as_they_come(plan, inverse_order(plan.factors, plan.placement, by));
  return plan;
}

struct Played {
  double iteration_seconds = 0;
  double phase_seconds = 0;  // of inverses, by themselves: where computation hides the difference
  Plan plan;
};

// Takes of the fastest, which differ by rounding alone, one whose inverses end first; `played` is not empty.
Played& best_of(std::vector<Played>& played) {
  auto best = std::min_element(played.begin(), played.end(), [](const Played& one, const Played& other) {
    return one.iteration_seconds < other.iteration_seconds;
  });
  const double as_fast = best->iteration_seconds * (1 + kTie);
  for (auto one = played.begin(); one != played.end(); ++one)
    if (one->iteration_seconds <= as_fast && one->phase_seconds < best->phase_seconds * (1 - kTie))
      best = one;
  return *best;
}

// Returns the same job, whose layers with curvature have their weights as tensors.
Job with_gradients(Job job) {
  for (std::size_t layer = 0; layer < job.curvature.size(); ++layer) {
    const std::optional<LayerCurvature>& curvature = job.curvature[layer];
    if (!curvature) continue;
    job.workload.layers[layer].tensors = {static_cast<TensorId>(job.workload.tensors.size())};
    job.workload.tensors.push_back(
        {.name = job.workload.layers[layer].name, .elements = curvature->inputs * curvature->outputs});
  }
  return job;
}

}  // namespace

void check(const Intervals& intervals) {
  if (intervals.factors == 0 || intervals.inverses == 0 || intervals.inverses % intervals.factors != 0)
    throw ConfigError(fmt::format(
        "factors every {} iterations and inverses every {} cannot be: both are at least 1, and inverses come "
        "at a multiple of the interval of factors",
        intervals.factors, intervals.inverses));
}

std::vector<Factor> Job::factors() const {
  std::vector<LayerShape> shapes;
  std::vector<LayerId> layers;
  for (LayerId layer = 0; layer < curvature.size(); ++layer)
    if (curvature[layer]) {
      shapes.push_back({workload.layers.at(layer).name, curvature[layer]->inputs, curvature[layer]->outputs});
      layers.push_back(layer);
    }
  std::vector<Factor> factors = factors_of(shapes);
  for (Factor& factor : factors) factor.layer = layers[factor.layer];
  return factors;
}

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> kTable{{.name = "d-kfac",
                                             .travel = Travel::after_backward,
                                             .fusion = FusionRule::together,
                                             .placement = PlacementRule::all_local},
                                            {.name = "mpd-kfac",
                                             .travel = Travel::after_backward,
                                             .fusion = FusionRule::together,
                                             .placement = PlacementRule::round_robin},
                                            {.name = "mpd-kfac-owner",
                                             .travel = Travel::after_backward,
                                             .fusion = FusionRule::together,
                                             .placement = PlacementRule::round_robin,
                                             .reduce_to_owner = true},
                                            {.name = "spd-kfac"},
                                            {.name = "spd-kfac-owner", .reduce_to_owner = true}};
  return kTable;
}

const Strategy& find_strategy(std::string_view name) {
  return find_named(strategies(), name, "K-FAC strategy");
}

std::uint64_t Plan::digest() const {
  Digest digest;
  digest.add(strategy).add(factors.size());
  for (const Factor& factor : factors)
    digest.add(factor.layer)
        .add(static_cast<std::uint64_t>(factor.side))
        .add(static_cast<std::uint64_t>(factor.dimension));
  digest.add(groups.size());
  for (const Group& group : groups) {
    digest.add(group.factors.size()).add(static_cast<std::uint64_t>(group.owner.value_or(-1)));
    for (const FactorId factor : group.factors) digest.add(factor);
  }
  for (const std::optional<int>& owner : placement)
    digest.add(static_cast<std::uint64_t>(owner.value_or(-1)));
  for (const FactorId factor : inversions) digest.add(factor);
  digest.add(static_cast<std::uint64_t>(travel)).add(static_cast<std::uint64_t>(sending));
  return digest.value();
}

PlacementCosts placement_costs(const Costs& costs) {
  return {.invert = [invert = costs.invert](std::int64_t dimension) { return invert.seconds(dimension); },
          .distribute = [broadcast =
                             costs.broadcast](std::int64_t elements) { return broadcast.seconds(elements); }};
}

Plan make_plan(const Job& job, const Costs& costs, const Strategy& strategy, const Grouping& grouping,
               const Intervals& intervals) {
  validate(job, costs);
  check(intervals);
  const PlacementCosts by = placement_costs(costs);
  const std::vector<Factor> factors = job.factors();
  std::vector<Placement> candidates = placements(factors, costs.ranks, strategy.placement, by);
  if (candidates.size() == 1) return plan_with(job, costs, strategy, std::move(candidates.front()), by);
  std::vector<Played> played;
  for (Placement& placement : candidates) {
    const double phase = inverse_phase(factors, placement, costs.ranks, by).finish_seconds;
    Plan plan = plan_with(job, costs, strategy, std::move(placement), by);
    const double iteration = mean_iteration_seconds(job, grouping, plan, costs, intervals);
    played.push_back({.iteration_seconds = iteration, .phase_seconds = phase, .plan = std::move(plan)});
  }
  return std::move(best_of(played).plan);
}

Plan make_plan(const Job& job, const Costs& costs, const Strategy& strategy, const Intervals& intervals) {
  if (!job.workload.tensors.empty())
    return make_plan(job, costs, strategy, group(job.workload, BySize{kGradientBucketBytes}), intervals);
  validate(job, costs);
  const Job whole = with_gradients(job);
  return make_plan(whole, costs, strategy, group(whole.workload, BySize{kGradientBucketBytes}), intervals);
}

}  // namespace dear::methods::kfac
