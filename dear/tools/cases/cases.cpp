#include "dear/tools/cases/cases.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/sim/simulate.h"
#include "dear/tools/cases/kfac_cases.h"

namespace dear::cases {
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
                      .fusion = names.buckets ? FusionChoice{.kind = FusionChoice::Kind::given,
                                                             .fusion = Fusion(*names.buckets)}
                                              : FusionChoice::of_simulation(names.fusion),
                      .evaluate = std::move(evaluate),
                      .times = {.algorithm = names.algorithm},
                      .compressions = Compressions(names.compression)};
  for (const std::string& name : names.policies) options.policies.push_back(&find_policy(plain_policy(name)));
  options.evaluate.detail = sim::parse_detail(names.detail);
  options.evaluate.jobs = {.count = names.jobs, .placement = sim::parse_placement(names.placement)};
  // Closed forms have names for ways on clusters; blocks, for programs.
  if (options.evaluate.detail != sim::Detail::closed_form) {
    if (names.algorithm != "auto") options.evaluate.program = names.algorithm;
    options.times.algorithm = "ring";
  }
  return options;
}

std::vector<Case> simulate(const std::vector<Scenario>& scenarios, CaseOptions options) {
  std::vector<Case> cases;
  for (const Scenario& scenario : scenarios) {
    const Cluster one_job = cluster_of_one_job(scenario.cluster, options.evaluate.jobs.count);
    const cost::CollectiveTimes times = cost::times_on(one_job, options.times);
    const std::vector<Compressions::Modelled> compressions = options.compressions.in(scenario, times.ranks);
    for (const Policy* policy : options.policies) {
      const Case dense{.scenario = &scenario,
                       .policy = policy,
                       .fusion = options.fusion.text(),
                       .grouping = options.fusion.resolve(*policy, scenario.workload, times),
                       .times = times,
                       .options = options.evaluate,
                       .evaluation = {}};
      std::vector<Case> ways = {dense};
      for (const auto& [model, codec] : compressions) {
        ways.push_back(dense);
        ways.back().options.compression = model;
        ways.back().codec = codec;
      }
      for (Case& one : ways) {
        one.evaluation =
            sim::evaluate(*policy, scenario.workload, one.grouping, scenario.cluster, times, one.options);
        cases.push_back(std::move(one));
      }
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
    if (one.options.compression) {
      row["compression"] = one.compression();
      row["codec_seconds"] = evaluation.codec_seconds;
    }
    list.push_back(std::move(row));
  }
  return list.dump(2) + "\n";
}

std::string plot(const std::vector<Case>& cases, const std::string& title) {
  std::vector<charts::BarPanel> panels;
  const Scenario* current = nullptr;
  for (const Case& one : cases) {
    if (one.scenario != current) {
      current = one.scenario;
      panels.push_back(panel_of(current->workload.name, current->cluster, one.times.ranks));
    }
    const sim::Evaluation& evaluation = one.evaluation;
    std::string label(one.policy->name);
    for (const std::string& more : {one.fusion == "usual" ? "" : one.fusion, one.compression()})
      if (!more.empty()) label += ", " + more;
    panels.back().bars.push_back(
        {.label = std::move(label),
         .first = evaluation.iteration.seconds - evaluation.exposed_communication_seconds,
         .second = evaluation.exposed_communication_seconds,
         .mark = evaluation.bound_seconds,
         .half_width = evaluation.iteration.half_width_seconds});
  }
  return chart_of(panels, title, "bound of the policy", "interval of 95 % under jitter");
}

Trace trace_of(const Case& one) {
  const CompressedSchedule made =
      sim::schedule_of(*one.policy, one.scenario->workload, one.grouping, one.times, one.options);
  return sim::to_trace(made.schedule, one.scenario->workload, one.evaluation.spans,
                       sim::describe(one.scenario->cluster), one.times.ranks);
}

}  // namespace dear::cases
