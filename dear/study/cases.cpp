#include "dear/study/cases.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/drawing/bar_chart.h"
#include "dear/sim/simulate.h"

namespace dear::study {
namespace {

Cluster cluster_of_one_job(const Cluster& cluster, int jobs) {
  if (cluster.ranks() % jobs != 0)
    throw ConfigError(fmt::format(
        "the {} ranks of {} cannot be shared among {} equal jobs: say with --ranks how many each has",
        cluster.ranks(), cluster.name, jobs));
  return with_ranks(cluster, cluster.ranks() / jobs);
}

}  // namespace

CaseOptions find_options(const CaseNames& names, sim::EvaluateOptions evaluate) {
  CaseOptions options{.policies = {},
                      .fusion = names.buckets ? plan::FusionChoice(Fusion(*names.buckets))
                                              : plan::FusionChoice::parse(names.fusion),
                      .evaluate = std::move(evaluate),
                      .times = {.algorithm = names.algorithm}};
  for (const std::string& name : names.policies) options.policies.push_back(&find_policy(name));
  options.evaluate.detail = sim::parse_detail(names.detail);
  options.evaluate.jobs = {.count = names.jobs, .placement = sim::parse_placement(names.placement)};
  // Closed forms have names for ways on clusters; blocks, for programs.
  if (options.evaluate.detail != sim::Detail::closed_form) {
    if (names.algorithm != "auto") options.evaluate.program = names.algorithm;
    options.times.algorithm = "ring";
  }
  return options;
}

std::vector<Case> simulate(const std::vector<Scenario>& scenarios, const CaseOptions& options) {
  std::vector<Case> cases;
  for (const Scenario& scenario : scenarios) {
    const Cluster one_job = cluster_of_one_job(scenario.cluster, options.evaluate.jobs.count);
    const cost::CollectiveTimes times = cost::times_on(one_job, options.times);
    for (const Policy* policy : options.policies) {
      Grouping grouping = options.fusion.resolve(*policy, scenario.workload, times);
      sim::Evaluation evaluation =
          sim::evaluate(*policy, scenario.workload, grouping, scenario.cluster, times, options.evaluate);
      cases.push_back({.scenario = &scenario,
                       .policy = policy,
                       .fusion = options.fusion.text(),
                       .grouping = std::move(grouping),
                       .times = times,
                       .evaluation = std::move(evaluation)});
    }
  }
  return cases;
}

std::string to_json(const std::vector<Case>& cases) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Case& one : cases) {
    const sim::Evaluation& evaluation = one.evaluation;
    nlohmann::ordered_json row{{"model", one.scenario->workload.name},
                               {"cluster", one.scenario->cluster.name},
                               {"ranks", one.times.ranks},
                               {"policy", one.policy->name},
                               {"fusion", one.fusion},
                               {"buckets", one.grouping.size()},
                               {"iteration_seconds", evaluation.iteration.seconds},
                               {"compute_seconds", evaluation.compute_seconds},
                               {"exposed_communication_seconds", evaluation.exposed_communication_seconds},
                               {"bound_seconds", evaluation.bound_seconds},
                               {"memory_bytes", evaluation.memory.total()}};
    if (evaluation.iteration.half_width_seconds > 0)
      row["iteration_seconds_half_width"] = evaluation.iteration.half_width_seconds;
    list.push_back(std::move(row));
  }
  return list.dump(2) + "\n";
}

std::string plot(const std::vector<Case>& cases, const std::string& title) {
  std::vector<drawing::BarPanel> panels;
  const Scenario* current = nullptr;
  for (const Case& one : cases) {
    if (one.scenario != current) {
      current = one.scenario;
      panels.push_back({.title = fmt::format("{} on {}, {} ranks", current->workload.name,
                                             current->cluster.name, one.times.ranks),
                        .bars = {}});
    }
    const sim::Evaluation& evaluation = one.evaluation;
    panels.back().bars.push_back(
        {.label = one.fusion == "usual" ? std::string(one.policy->name)
                                        : fmt::format("{}, {}", one.policy->name, one.fusion),
         .first = evaluation.iteration.seconds - evaluation.exposed_communication_seconds,
         .second = evaluation.exposed_communication_seconds,
         .mark = evaluation.bound_seconds});
  }
  return drawing::bar_chart(panels, {.title = title,
                                     .first = "computation",
                                     .second = "exposed communication",
                                     .mark = "bound of the policy",
                                     .format = format_seconds});
}

Trace trace_of(const Case& one) {
  const Schedule schedule = make_schedule(*one.policy, one.scenario->workload, one.grouping, one.times);
  return sim::to_trace(schedule, one.scenario->workload, one.evaluation.spans,
                       sim::describe(one.scenario->cluster), one.times.ranks);
}

}  // namespace dear::study
