#include "dear/kfac/plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/digest.h"
#include "dear/base/error.h"

namespace dear::kfac {
namespace {

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
    const std::optional<Curvature>& curvature = job.curvature[at];
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

Placement place(const std::vector<Factor>& factors, const Costs& costs, PlacementRule rule,
                const PlacementCosts& placement_costs) {
  switch (rule) {
    case PlacementRule::all_local:
      return all_local(factors.size());
    case PlacementRule::round_robin:
      return costs.ranks == 1 ? all_local(factors.size()) : round_robin(factors.size(), costs.ranks);
    case PlacementRule::balanced:
      break;
  }
  return balanced(factors, costs.ranks, placement_costs);
}

// Appends the groups of one direction, whose factors are `first`, first + 1, ...
void add_groups(Plan& plan, const Groups& sizes, std::size_t first) {
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

}  // namespace

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
  static const std::vector<Strategy> table{{.name = "d-kfac",
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
  return table;
}

const Strategy& find_strategy(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Strategy& strategy : strategies()) {
    if (strategy.name == name) return strategy;
    names.push_back(strategy.name);
  }
  throw ConfigError(
      fmt::format("there is no K-FAC strategy '{}': choose one of {}", name, fmt::join(names, ", ")));
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
  return digest.value();
}

Plan make_plan(const Job& job, const Costs& costs, const Strategy& strategy) {
  validate(job, costs);
  Plan plan{.strategy = strategy.name,
            .travel = strategy.travel,
            .reduce_to_owner = strategy.reduce_to_owner,
            .factors = job.factors(),
            .groups = {},
            .placement = {},
            .inversions = {}};
  const PlacementCosts placement_costs{
      .invert = [&](std::int64_t dimension) { return costs.invert.seconds(dimension); },
      .distribute = [&](std::int64_t elements) { return costs.broadcast.seconds(elements); }};
  plan.placement = place(plan.factors, costs, strategy.placement, placement_costs);
  plan.inversions = inverse_order(plan.factors, plan.placement, placement_costs);
  const std::size_t half = plan.factors.size() / 2;
  if (strategy.travel == Travel::after_backward && strategy.fusion == FusionRule::together) {
    add_groups(plan, all_together(plan.factors.size()), 0);
  } else {
    add_groups(plan, fuse(readiness(job, plan.factors, Side::input), strategy, costs.all_reduce), 0);
    add_groups(plan, fuse(readiness(job, plan.factors, Side::output), strategy, costs.all_reduce), half);
  }
  if (strategy.reduce_to_owner) split_by_owner(plan);
  return plan;
}

}  // namespace dear::kfac
