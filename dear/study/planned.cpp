#include "dear/study/planned.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/error.h"
#include "dear/base/units.h"

namespace dear::study {
namespace {

nlohmann::ordered_json row_of(const plan::Row& row) {
  const sim::Evaluation& evaluation = row.evaluation;
  return {{"policy", row.policy->name},
          {"fusion", row.fusion},
          {"algorithm", row.algorithm},
          {"buckets", row.grouping.size()},
          {"iteration_seconds", evaluation.iteration.seconds},
          {"exposed_communication_seconds", evaluation.exposed_communication_seconds},
          {"compute_seconds", row.breakdown.compute},
          {"overlap_seconds", row.breakdown.overlap},
          {"fusion_seconds", row.breakdown.fusion},
          {"start_up_seconds", row.breakdown.start_up},
          {"interference_seconds", row.breakdown.interference},
          {"bound_seconds", evaluation.bound_seconds},
          {"memory_bytes", evaluation.memory.total()},
          {"fits", row.fits},
          {"why", row.why}};
}

nlohmann::ordered_json json_of(const PlannedScenario& planned) {
  const plan::Answer& answer = planned.answer;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const plan::Row& row : answer.rows) rows.push_back(row_of(row));
  nlohmann::ordered_json changes = nlohmann::ordered_json::array();
  for (const plan::Sensitivity& change : answer.sensitivities)
    changes.push_back({{"change", change.change},
                       {"iteration_seconds", change.iteration_seconds},
                       {"speed_up", change.speed_up}});
  return {{"model", planned.scenario->workload.name},
          {"cluster", planned.scenario->cluster.name},
          {"ranks", planned.scenario->cluster.ranks()},
          {"floor_seconds", answer.floor_seconds},
          {"best", answer.best},
          {"rows", std::move(rows)},
          {"sensitivities", std::move(changes)},
          {"verdict", answer.verdict}};
}

}  // namespace

plan::Options find_options(const PlanNames& names) {
  plan::Options options{.evaluate = {.optimizer_states = names.optimizer_states},
                        .times = {.algorithm = names.algorithm}};
  for (const std::string& name : names.policies) options.policies.push_back(&find_policy(name));
  return options;
}

PlannedScenario plan(const Scenario& scenario, plan::Options options) {
  options.memory_bytes = scenario.memory_bytes;
  return {.scenario = &scenario, .answer = plan::plan(scenario.workload, scenario.cluster, options)};
}

std::string to_json(const std::vector<PlannedScenario>& planned) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlannedScenario& one : planned) list.push_back(json_of(one));
  return list.dump(2) + "\n";
}

ScheduleFile schedule_of(const PlannedScenario& planned) {
  const Scenario& scenario = *planned.scenario;
  const plan::Row& row = planned.answer.rows[planned.answer.best];
  if (!row.fits)
    throw ConfigError(fmt::format("there is no schedule of {} on {}: nothing fits into the {} of a rank",
                                  scenario.workload.name, scenario.cluster.name,
                                  format_bytes(scenario.memory_bytes)));
  return {.model = scenario.workload.name,
          .cluster = scenario.cluster.name,
          .ranks = scenario.cluster.ranks(),
          .policy = std::string(row.policy->name),
          .buckets = names_in(scenario.workload, row.grouping)};
}

}  // namespace dear::study
