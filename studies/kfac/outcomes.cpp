#include "studies/kfac/outcomes.h"

#include <utility>

#include "dear/schedule/fusion/grouping.h"

namespace dear::studies::kfac {

using dear::methods::kfac::Costs;
using dear::methods::kfac::Factor;
using dear::methods::kfac::FusionRule;
using dear::methods::kfac::InversePhase;
using dear::methods::kfac::Job;
using dear::methods::kfac::Placement;
using dear::methods::kfac::PlacementRule;
using dear::methods::kfac::Prediction;
using dear::methods::kfac::Sending;
using dear::methods::kfac::Strategy;
using dear::methods::kfac::Travel;

namespace {

Strategy by_name(const PublishedJob& job, std::string_view fusion) {
  Strategy strategy{.name = std::string(fusion), .placement = PlacementRule::all_local};
  if (fusion == "bulk") {
    strategy.travel = Travel::after_backward;
    strategy.fusion = FusionRule::together;
  } else if (fusion == "rule") {
    strategy.fusion = FusionRule::by_rule;
  } else {
    strategy.fusion = fusion == "exact" ? FusionRule::exact : FusionRule::alone;
  }
  return fusion == "threshold" || fusion == "rule" ? as_published(job, strategy) : strategy;
}

double iteration_of(const PublishedJob& job, const Costs& costs, std::string_view fusion) {
  return predict(job.job, costs, by_name(job, fusion)).iteration_seconds;
}

}  // namespace

double seconds_of(const std::vector<Outcome>& outcomes, std::string_view name) {
  for (const Outcome& outcome : outcomes)
    if (outcome.name == name) return outcome.seconds;
  return 0;
}

std::int64_t elements_of(const std::vector<Factor>& factors) {
  std::int64_t elements = 0;
  for (const Factor& factor : factors) elements += factor.packed_elements();
  return elements;
}

Strategy as_published(const PublishedJob& job, Strategy strategy) {
  strategy.sending = Sending::after_inverses;
  if (strategy.placement == PlacementRule::planned) strategy.placement = PlacementRule::balanced;
  if (strategy.travel == Travel::after_backward) return strategy;
  strategy.cycle_seconds = job.cycle_seconds;
  strategy.threshold_elements = job.threshold_elements;
  return strategy;
}

Prediction predict(const Job& job, const Costs& costs, const Strategy& strategy) {
  const Grouping grouping = group(job.workload, BySize{dear::methods::kfac::kGradientBucketBytes});
  return dear::methods::kfac::predict(job, grouping, dear::methods::kfac::make_plan(job, costs, strategy),
                                      costs);
}

std::vector<Outcome> by_fusion(const PublishedJob& job, const Costs& costs,
                               const std::vector<std::string_view>& names) {
  const double bulk = costs.all_reduce.seconds(elements_of(job.job.factors()));
  const double iteration = iteration_of(job, costs, "bulk");
  std::vector<Outcome> outcomes;
  for (const std::string_view name : names)
    outcomes.push_back(
        {std::string(name), name == "bulk" ? bulk : bulk + iteration_of(job, costs, name) - iteration});
  return outcomes;
}

std::vector<Outcome> by_placement(const PublishedJob& job, const Costs& costs) {
  const std::vector<Factor> factors = job.job.factors();
  const dear::methods::kfac::PlacementCosts placement = dear::methods::kfac::placement_costs(costs);
  const auto seconds = [&](const Placement& placed) {
    const InversePhase phase = dear::methods::kfac::inverse_phase(factors, placed, costs.ranks, placement);
    return phase.compute_seconds + phase.communicate_seconds;
  };
  return {{"local", seconds(dear::methods::kfac::all_local(factors.size()))},
          {"round-robin", seconds(dear::methods::kfac::round_robin(factors.size(), costs.ranks))},
          {"balanced", seconds(dear::methods::kfac::balanced(factors, costs.ranks, placement))}};
}

std::vector<Outcome> by_step(const PublishedJob& job, const Costs& costs) {
  const auto seconds = [&](std::string_view fusion, PlacementRule placement) {
    Strategy strategy = as_published(job, by_name(job, fusion));
    strategy.placement = placement;
    return predict(job.job, costs, strategy).iteration_seconds;
  };
  return {{"none", seconds("bulk", PlacementRule::all_local)},
          {"pipelining", seconds("rule", PlacementRule::all_local)},
          {"balance", seconds("bulk", PlacementRule::balanced)},
          {"both", seconds("rule", PlacementRule::balanced)}};
}

std::vector<Outcome> by_strategy(const Job& job, const Costs& costs) {
  std::vector<Outcome> outcomes;
  for (const Strategy& strategy : dear::methods::kfac::strategies())
    outcomes.push_back({strategy.name, predict(job, costs, strategy).iteration_seconds});
  Strategy exact = dear::methods::kfac::find_strategy("spd-kfac");
  exact.fusion = FusionRule::exact;
  outcomes.push_back({"spd-kfac, exact fusion", predict(job, costs, exact).iteration_seconds});
  return outcomes;
}

}  // namespace dear::studies::kfac
