#include "dear/tools/cases/planned.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/tools/cases/kfac_cases.h"

namespace dear::cases {
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
          {"runs", row.runs()},
          {"why", row.why}};
}

nlohmann::ordered_json json_of(const plan::Gain& gain) {
  return {{"over", gain.over},
          {"seconds", gain.seconds},
          {"schedule_seconds", gain.schedule},
          {"sharding_seconds", gain.sharding},
          {"collectives_seconds", gain.collectives},
          {"fusion_seconds", gain.fusion}};
}

nlohmann::ordered_json row_of(const plan::CompressedRow& one) {
  const plan::Row& row = one.row;
  const double pays_below = one.crossover.bits_per_second;
  nlohmann::ordered_json json{{"compression", one.model.compression.text()},
                              {"policy", row.policy->name},
                              {"fusion", row.fusion},
                              {"buckets", row.grouping.size()},
                              {"iteration_seconds", row.evaluation.iteration.seconds},
                              {"dense_iteration_seconds", one.dense_seconds},
                              {"codec_seconds", row.evaluation.codec_seconds},
                              {"memory_bytes", row.evaluation.memory.total()},
                              {"fits", row.fits},
                              {"pays_below_bits_per_second", nullptr},
                              {"why_not_above", one.crossover.why}};
  if (std::isfinite(pays_below)) json["pays_below_bits_per_second"] = pays_below;
  return json;
}

nlohmann::ordered_json json_of(const PlannedRounds& rounds) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const PlannedRounds::Row& row : rounds.rows)
    rows.push_back({{"steps_a_round", row.steps},
                    {"iteration_seconds", row.waits.seconds},
                    {"overlapped_seconds", row.overlaps.seconds},
                    {"sent_bytes", row.waits.sent_bytes}});
  return {{"policy", rounds.policy},
          {"compute_seconds", rounds.job.step_seconds},
          {"as_fast_from_steps", rounds.as_fast_from},
          {"hidden_from_steps", rounds.hidden_from},
          {"rows", std::move(rows)},
          {"verdict", rounds.sentence}};
}

// "dear, to use", "fsdp, too large", "horovod, simulated".
std::string label_of(const plan::Row& row, bool to_use) {
  return fmt::format("{}{}", row.policy->name,
                     !row.fits     ? ", too large"
                     : to_use      ? ", to use"
                     : !row.runs() ? ", simulated"
                                   : "");
}

nlohmann::ordered_json json_of(const PlannedScenario& planned) {
  const plan::Answer& answer = planned.answer;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const plan::Row& row : answer.rows) rows.push_back(row_of(row));
  nlohmann::ordered_json changes = nlohmann::ordered_json::array();
  for (const plan::Sensitivity& change : answer.sensitivities)
    changes.push_back({{"change", change.change},
                       {"iteration_seconds", change.iteration_seconds},
                       {"speed_up", change.speed_up},
                       {"fits", change.fits},
                       {"memory_bytes", change.memory_bytes}});
  nlohmann::ordered_json left_out = nlohmann::ordered_json::array();
  for (const plan::LeftOut& one : answer.left_out)
    left_out.push_back({{"policy", one.policy->name}, {"reason", one.reason}});
  nlohmann::ordered_json json{{"model", planned.scenario->workload.name},
                              {"cluster", planned.scenario->cluster.name},
                              {"ranks", planned.scenario->cluster.ranks()},
                              {"device", planned.scenario->workload.device},
                              {"memory_bytes", planned.scenario->memory_bytes},
                              {"floor_seconds", answer.floor_seconds},
                              {"best", answer.best},
                              {"rows", std::move(rows)},
                              {"left_out", std::move(left_out)},
                              {"gain", nullptr},
                              {"sensitivities", std::move(changes)},
                              {"verdict", answer.verdict}};
  if (answer.gain) json["gain"] = json_of(*answer.gain);
  if (!answer.compressed.empty()) {
    nlohmann::ordered_json compressed = nlohmann::ordered_json::array();
    for (const plan::CompressedRow& one : answer.compressed) compressed.push_back(row_of(one));
    json["compressed"] = std::move(compressed);
  }
  if (planned.rounds) json["rounds"] = json_of(*planned.rounds);
  return json;
}

}  // namespace

plan::Options find_options(const PlanNames& names) {
  plan::Options options{
      .evaluate = {.optimizer_states = names.optimizer_states, .micro_batches = names.micro_batches},
      .times = {.algorithm = names.algorithm}};
  for (const std::string& name : names.policies) options.policies.push_back(&find_policy(plain_policy(name)));
  return options;
}

PlannedScenario plan(const Scenario& scenario, plan::Options options,
                     const std::vector<Compressions::Modelled>& compressions) {
  options.memory_bytes = scenario.memory_bytes;
  options.checkpointed = scenario.checkpointed;
  options.compressions.clear();
  std::vector<std::string> codecs;
  for (const auto& [model, codec] : compressions) {
    options.compressions.push_back(model);
    codecs.push_back(codec);
  }
  PlannedScenario planned{.scenario = &scenario,
                          .answer = plan::plan(scenario.workload, scenario.cluster, options),
                          .codecs = std::move(codecs)};
  planned.rounds =
      rounds_instead_of(planned.answer.rows[planned.answer.best], scenario,
                        cost::times_on(scenario.cluster, options.times), options.evaluate.micro_batches);
  return planned;
}

std::string to_json(const std::vector<PlannedScenario>& planned) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlannedScenario& one : planned) list.push_back(json_of(one));
  return list.dump(2) + "\n";
}

std::string plot(const std::vector<PlannedScenario>& planned) {
  std::vector<charts::BarPanel> panels;
  for (const PlannedScenario& one : planned) {
    const Cluster& cluster = one.scenario->cluster;
    panels.push_back(panel_of(one.scenario->workload.name, cluster, cluster.ranks()));
    for (const plan::Row& row : one.answer.rows) {
      const double exposed = row.evaluation.exposed_communication_seconds;
      panels.back().bars.push_back({.label = label_of(row, &row == &one.answer.rows[one.answer.best]),
                                    .first = row.seconds() - exposed,
                                    .second = exposed,
                                    .mark = row.evaluation.bound_seconds});
    }
  }
  return chart_of(panels, "Iteration times of each policy's best buckets, modelled", "bound of the policy");
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

}  // namespace dear::cases
