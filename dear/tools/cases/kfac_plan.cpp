#include "dear/tools/cases/kfac_plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/units.h"
#include "dear/schedule/policies/policy.h"
#include "dear/tools/cases/planned.h"

namespace dear::cases {
namespace {

constexpr const char* kBuckets = "25MiB";  // of gradients
constexpr double kShortestSeconds = 1e-9;  // anything less is a rounding error of sums of times

// All ways of a strategy that are worth a look: where nothing travels under the passes, fusion changes
// little, and on one rank nothing changes anything. Who inverts is planned for each.
std::vector<KfacAnswer::Row> ways_of(const KfacJob& on, const methods::kfac::Strategy& strategy) {
  std::vector<methods::kfac::FusionRule> fusions{strategy.fusion};
  if (strategy.travel == methods::kfac::Travel::as_ready && on.costs.ranks > 1)
    fusions = {methods::kfac::FusionRule::by_rule, methods::kfac::FusionRule::exact,
               methods::kfac::FusionRule::threshold};
  std::vector<KfacAnswer::Row> rows;
  for (const methods::kfac::FusionRule fusion : fusions) {
    methods::kfac::Strategy way = strategy;
    way.fusion = fusion;
    rows.push_back({name_of(fusion), name_of(way.placement), simulate(on, way, {}), ""});
  }
  return rows;
}

// The part of an iteration that a rank spends without computing.
std::string why(const methods::kfac::Breakdown& parts, int ranks) {
  if (ranks == 1) return "for nothing: nothing travels";
  const std::vector<std::pair<double, std::string>> waits{{parts.gradients, "gradients"},
                                                          {parts.factors_sent, "factors that travel"},
                                                          {parts.inverses_sent, "inverses of other ranks"}};
  const auto most = std::max_element(waits.begin(), waits.end());
  double all = 0;
  for (const auto& [seconds, what] : waits) all += seconds;
  if (all < 0.01 * parts.total()) return "for nothing: computation hides all that travels";
  return fmt::format("for {} ({} of {} that wait)", most->second, format_seconds(most->first),
                     format_seconds(all));
}

double seconds_on_the_network(const KfacCase& one) {
  double seconds = 0;
  for (const methods::kfac::Plan::Group& group : one.plan.groups)
    seconds += (group.owner ? one.on.costs.reduce : one.on.costs.all_reduce).seconds(group.elements);
  return seconds;
}

std::string what_is_hidden(const KfacAnswer::Row& best) {
  const KfacCase& one = best.one;
  if (one.on.costs.ranks == 1) return "On one rank nothing travels.";
  const double travels = seconds_on_the_network(one);
  const double exposed = std::min(one.prediction.parts.factors_sent, travels);
  const double hidden = travels - exposed;
  return fmt::format("The {} travel in {}, {} in all, of which {} under the passes.",
                     counted(one.plan.factors.size(), "factor"), counted(one.plan.groups.size(), "group"),
                     format_seconds(travels),
                     hidden < kShortestSeconds ? "none lies" : format_seconds(hidden) + " lie");
}

std::string why_placed_so(const KfacCase& one) {
  const methods::kfac::Costs& costs = one.on.costs;
  if (costs.ranks == 1) return "One rank inverts everything.";
  const auto sends = [&](const methods::kfac::Factor& factor) {
    return costs.broadcast.seconds(factor.packed_elements());
  };
  const auto inverts = [&](const methods::kfac::Factor& factor) {
    return costs.invert.seconds(factor.dimension);
  };
  // The largest of those that are sent, or of all.
  const std::size_t sent = one.inverses_sent();
  const methods::kfac::Factor* largest = nullptr;
  for (std::size_t i = 0; i < one.plan.factors.size(); ++i) {
    const methods::kfac::Factor& factor = one.plan.factors[i];
    if (sent > 0 && !one.plan.placement[i]) continue;
    if (largest == nullptr || factor.dimension > largest->dimension) largest = &factor;
  }
  const std::string example =
      fmt::format("of dimension {}, takes {} to invert and {} to send", largest->dimension,
                  format_seconds(inverts(*largest)), format_seconds(sends(*largest)));
  if (sent == 0) return fmt::format("Every rank inverts all factors for itself: the largest, {}.", example);
  return fmt::format(
      "{} of {} inverses {} computed by one rank and sent to all others: the largest of them, {}.", sent,
      one.plan.factors.size(), sent == 1 ? "is" : "are", example);
}

// "in every iteration", "once in 10 iterations".
std::string how_often(std::uint32_t interval) {
  return interval == 1 ? "in every iteration" : fmt::format("once in {} iterations", interval);
}

std::string what_to_use(const KfacAnswer::Row& best) {
  const std::string seconds = format_seconds(best.one.prediction.iteration_seconds);
  if (best.one.on.costs.ranks == 1)
    return fmt::format("All strategies of K-FAC take the same time: {} an iteration.", seconds);
  return fmt::format("Use {} with fusion {} and placement {}: {} an iteration.", best.one.strategy.name,
                     best.fusion, best.placement, seconds);
}

std::string when_it_pays(const KfacAnswer& answer) {
  const double every = answer.rows.front().one.prediction.iteration_seconds / answer.sgd_seconds;
  std::string text = fmt::format(
      "An iteration of SGD under {} takes {}, and one of K-FAC {:.1f} times as long: K-FAC saves time if SGD "
      "needs more than {:.1f} times as many iterations.",
      answer.sgd_policy, format_seconds(answer.sgd_seconds), every, every);
  for (const KfacCase& one : answer.seldom)
    text += fmt::format(" With factors computed {} and inverses {} it is {:.1f} times.",
                        how_often(one.intervals.factors), how_often(one.intervals.inverses),
                        one.prediction.iteration_seconds / answer.sgd_seconds);
  return text;
}

// Only policies that train, each with its best buckets.
void set_sgd(KfacAnswer& answer, const Scenario& scenario, const cost::ClusterTimesOptions& times) {
  plan::Options options;
  options.times = times;
  for (const Policy& policy : policies())
    if (policy.trains) options.policies.push_back(&policy);
  const plan::Answer sgd = plan(scenario, options).answer;
  answer.sgd_policy = sgd.rows[sgd.best].policy->name;
  answer.sgd_seconds = sgd.rows[sgd.best].seconds();
}

nlohmann::ordered_json json_of(const KfacCase& one) {
  return nlohmann::ordered_json::parse(to_json(std::vector<KfacCase>{one})).front();
}

}  // namespace

KfacAnswer plan_kfac(const Scenario& scenario, const KfacPlanOptions& options) {
  KfacAnswer answer{.on = kfac_job(scenario, Fusion::parse(kBuckets), options.times),
                    .rows = {},
                    .seldom = {},
                    .sgd_policy = {},
                    .verdict = {}};
  for (const methods::kfac::Strategy& strategy :
       options.strategies.empty() ? methods::kfac::strategies() : options.strategies) {
    for (KfacAnswer::Row& row : ways_of(answer.on, strategy)) {
      row.why = why(row.one.prediction.parts, answer.on.costs.ranks);
      answer.rows.push_back(std::move(row));
    }
  }
  std::stable_sort(answer.rows.begin(), answer.rows.end(), [](const auto& a, const auto& b) {
    return a.one.prediction.iteration_seconds < b.one.prediction.iteration_seconds;
  });
  if (answer.on.costs.ranks == 1) answer.rows.erase(answer.rows.begin() + 1, answer.rows.end());
  const KfacAnswer::Row& best = answer.rows.front();
  for (const methods::kfac::Intervals& intervals : options.seldom)
    answer.seldom.push_back(simulate(answer.on, best.one.strategy, intervals));
  set_sgd(answer, scenario, options.times);
  answer.verdict = {what_to_use(best), what_is_hidden(best), why_placed_so(best.one), when_it_pays(answer)};
  return answer;
}

std::string to_json(const std::vector<KfacAnswer>& answers) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KfacAnswer& answer : answers) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    nlohmann::ordered_json seldom = nlohmann::ordered_json::array();
    for (const KfacAnswer::Row& row : answer.rows) {
      rows.push_back(json_of(row.one));
      rows.back()["factor_fusion"] = row.fusion;
      rows.back()["inverse_placement"] = row.placement;
      rows.back()["why"] = row.why;
    }
    for (const KfacCase& one : answer.seldom) seldom.push_back(json_of(one));
    list.push_back({{"model", answer.on.scenario->workload.name},
                    {"cluster", answer.on.scenario->cluster.name},
                    {"ranks", answer.on.costs.ranks},
                    {"rows", rows},
                    {"seldom", seldom},
                    {"sgd", {{"policy", answer.sgd_policy}, {"iteration_seconds", answer.sgd_seconds}}},
                    {"verdict", answer.verdict}});
  }
  return list.dump(2) + "\n";
}

}  // namespace dear::cases
