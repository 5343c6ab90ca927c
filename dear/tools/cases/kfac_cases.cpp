#include "dear/tools/cases/kfac_cases.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/kfac/modelled.h"
#include "dear/methods/kfac/timeline.h"
#include "dear/predict/sim/simulate.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/zoo/models.h"

namespace dear::cases {
namespace {

template <typename T, std::size_t count>
T find(const std::array<std::pair<std::string_view, T>, count>& table, const std::string& name,
       std::string_view what) {
  std::vector<std::string_view> names;
  for (const auto& [known, value] : table) {
    if (known == name) return value;
    names.push_back(known);
  }
  throw ConfigError(fmt::format("there is no {} '{}': choose one of {}", what, name, fmt::join(names, ", ")));
}

constexpr std::array<std::pair<std::string_view, methods::kfac::FusionRule>, 5> kFusions{
    {{"alone", methods::kfac::FusionRule::alone},
     {"threshold", methods::kfac::FusionRule::threshold},
     {"rule", methods::kfac::FusionRule::by_rule},
     {"exact", methods::kfac::FusionRule::exact},
     {"together", methods::kfac::FusionRule::together}}};
constexpr std::array<std::pair<std::string_view, methods::kfac::PlacementRule>, 4> kPlacements{
    {{"local", methods::kfac::PlacementRule::all_local},
     {"round-robin", methods::kfac::PlacementRule::round_robin},
     {"balanced", methods::kfac::PlacementRule::balanced},
     {"planned", methods::kfac::PlacementRule::planned}}};

template <typename T, std::size_t count>
std::string name_in(const std::array<std::pair<std::string_view, T>, count>& table, T value) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& one) { return one.second == value; });
  return std::string(found->first);
}

double waiting_of(const methods::kfac::Breakdown& parts) {
  return parts.gradients + parts.factors_sent + parts.inverses_sent;
}

}  // namespace

bool is_kfac(std::string_view policy) {
  const std::vector<methods::kfac::Strategy>& all = methods::kfac::strategies();
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.name == policy; });
}

std::string_view plain_policy(std::string_view policy) {
  if (is_kfac(policy))
    throw ConfigError(fmt::format(
        "policy \"{}\" is one of K-FAC: take it with --policy of `dear simulate` and `dear replay`, "
        "with `dear plan --optimizer kfac`, or with dear.plan_kfac()",
        policy));
  std::vector<std::string_view> plain, kfac;
  for (const Policy& known : policies()) {
    if (known.name == policy) return policy;
    plain.push_back(known.name);
  }
  for (const methods::kfac::Strategy& strategy : methods::kfac::strategies()) kfac.push_back(strategy.name);
  throw ConfigError(fmt::format(
      "no policy is called \"{}\"{} choose one of {}; for K-FAC, with `dear simulate`, `dear replay`, "
      "`dear plan --optimizer kfac` or dear.plan_kfac(), one of {}",
      policy, did_you_mean(policy, plain, ":"), fmt::join(plain, ", "), fmt::join(kfac, ", ")));
}

std::string name_of(methods::kfac::FusionRule fusion) { return name_in(kFusions, fusion); }
std::string name_of(methods::kfac::PlacementRule placement) { return name_in(kPlacements, placement); }

KfacOptions find_options(const KfacNames& names) {
  KfacOptions options{.strategies = {},
                      .intervals = names.intervals,
                      .fusion = Fusion::parse(names.fusion),
                      .times = {.algorithm = names.algorithm}};
  methods::kfac::check(names.intervals);
  for (const std::string& name : names.policies) {
    methods::kfac::Strategy strategy = methods::kfac::find_strategy(name);
    if (!names.factor_fusion.empty())
      strategy.fusion = find(kFusions, names.factor_fusion, "fusion of factors");
    if (!names.inverse_placement.empty())
      strategy.placement = find(kPlacements, names.inverse_placement, "placement of inverses");
    options.strategies.push_back(std::move(strategy));
  }
  return options;
}

KfacJob kfac_job(const Scenario& scenario, const Fusion& fusion, const cost::ClusterTimesOptions& times) {
  if (!scenario.model)
    throw ConfigError(fmt::format(
        "K-FAC needs the shapes of layers, which the times of '{}' do not tell: take a model by name",
        scenario.workload.name));
  if (!scenario.cluster.stragglers.empty())
    throw ConfigError(
        fmt::format("{} has stragglers, which are not modelled with K-FAC: take a cluster without",
                    scenario.cluster.name));
  const zoo::Architecture architecture = zoo::find_model(scenario.model->name).make(scenario.model->size);
  const zoo::Device& device = zoo::find_device(scenario.device);
  KfacJob on{.scenario = &scenario,
             .job = methods::kfac::make_job(scenario.workload, architecture, device,
                                            {.batch = scenario.model->batch}),
             .costs = {},
             .grouping = fusion(scenario.workload)};
  if (on.job.factors().empty())
    throw ConfigError(fmt::format("no layer of '{}' is small enough for K-FAC", scenario.workload.name));
  on.left_out = methods::kfac::left_out(on.job, architecture);
  on.costs = methods::kfac::costs_on(scenario.cluster, times, device, on.job);
  return on;
}

std::string describe_left_out(const KfacJob& on) {
  constexpr std::size_t kMostNamed = 3;
  const std::size_t count = on.left_out.size();
  if (count == 0) return "";
  std::string layers = fmt::format(
      "{}", fmt::join(on.left_out.begin(),
                      on.left_out.begin() + static_cast<std::ptrdiff_t>(std::min(count, kMostNamed)), ", "));
  if (count > kMostNamed) layers = fmt::format("{} ({}, ...)", counted(count, "layer"), layers);
  return fmt::format("{}: {} {}, since a factor of {} would have a dimension above {}",
                     on.scenario->workload.name, layers,
                     count == 1 ? "keeps its plain gradient" : "keep their plain gradients",
                     count == 1 ? "it" : "each", methods::kfac::kLargestFactor);
}

std::size_t KfacCase::inverses_sent() const {
  return static_cast<std::size_t>(std::count_if(plan.placement.begin(), plan.placement.end(),
                                                [](const auto& owner) { return owner.has_value(); }));
}

KfacCase simulate(const KfacJob& on, const methods::kfac::Strategy& strategy,
                  const methods::kfac::Intervals& intervals) {
  methods::kfac::Plan plan = methods::kfac::make_plan(on.job, on.costs, strategy, on.grouping, intervals);
  methods::kfac::Prediction prediction =
      methods::kfac::predict(on.job, on.grouping, plan, on.costs, intervals);
  return {.on = on,
          .strategy = strategy,
          .intervals = intervals,
          .plan = std::move(plan),
          .prediction = std::move(prediction)};
}

std::vector<KfacCase> simulate(const std::vector<Scenario>& scenarios, const KfacOptions& options) {
  std::vector<KfacCase> cases;
  for (const Scenario& scenario : scenarios) {
    const KfacJob on = kfac_job(scenario, options.fusion, options.times);
    for (const methods::kfac::Strategy& strategy : options.strategies)
      cases.push_back(simulate(on, strategy, options.intervals));
  }
  return cases;
}

std::string to_json(const std::vector<KfacCase>& cases) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KfacCase& one : cases) {
    const methods::kfac::Breakdown& parts = one.prediction.parts;
    list.push_back({{"model", one.on.scenario->workload.name},
                    {"cluster", one.on.scenario->cluster.name},
                    {"ranks", one.on.costs.ranks},
                    {"policy", one.strategy.name},
                    {"factor_every", one.intervals.factors},
                    {"inverse_every", one.intervals.inverses},
                    {"iteration_seconds", one.prediction.iteration_seconds},
                    {"passes_seconds", parts.passes},
                    {"exposed_gradients_seconds", parts.gradients},
                    {"factors_seconds", parts.factors},
                    {"exposed_factors_seconds", parts.factors_sent},
                    {"inverses_seconds", parts.inverses},
                    {"exposed_inverses_seconds", parts.inverses_sent},
                    {"update_seconds", parts.update},
                    {"factors", one.plan.factors.size()},
                    {"groups", one.plan.groups.size()},
                    {"inverses_sent", one.inverses_sent()},
                    {"left_out", one.on.left_out},
                    {"curvature_bytes", methods::kfac::curvature_bytes(one.on.job)}});
  }
  return list.dump(2) + "\n";
}

std::string plot(const std::vector<KfacCase>& cases, const std::string& title) {
  std::vector<charts::BarPanel> panels;
  const Scenario* current = nullptr;
  for (const KfacCase& one : cases) {
    if (one.on.scenario != current) {
      current = one.on.scenario;
      panels.push_back(panel_of(current->workload.name, current->cluster, one.on.costs.ranks));
    }
    const double waiting = waiting_of(one.prediction.parts);
    panels.back().bars.push_back(
        {.label = one.strategy.name, .first = one.prediction.iteration_seconds - waiting, .second = waiting});
  }
  return chart_of(panels, title);
}

Trace trace_of(const KfacCase& one) {
  Trace trace = methods::kfac::to_trace(one.on.job, one.plan, one.prediction.iteration, one.prediction.spans,
                                        sim::describe(one.on.scenario->cluster));
  trace.title = fmt::format("dear simulate, policy {}, {}", one.strategy.name,
                            counted(static_cast<std::size_t>(one.on.costs.ranks), "rank"));
  return trace;
}

}  // namespace dear::cases
