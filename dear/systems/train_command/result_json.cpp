#include "dear/systems/train_command/result_json.h"

#include <nlohmann/json.hpp>

namespace dear::train_command {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const TrainResult& run) {
  const IterationTimes& times = run.times;
  Json json{
      {"policy", run.policy},
      {"workers", run.workers},
      {"steps", run.steps},
      {"network", run.network},
      {"fusion", run.fusion},
      {"optimizer", run.optimizer},
      {"gradients",
       {{"compression", run.sent.compression},
        {"bytes_per_step", run.sent.bytes},
        {"dense_bytes_per_step", run.sent.dense_bytes},
        {"residual_norm", run.sent.residual_norm},
        {"dense_exchanges", run.sent.dense_exchanges},
        {"not_finite", run.sent.not_finite}}},
      {"losses", run.losses},
      {"step_seconds", run.step_seconds},
      {"iteration_seconds",
       {{"median", times.iteration_seconds.median},
        {"p10", times.iteration_seconds.p10},
        {"p90", times.iteration_seconds.p90}}},
      {"compute_seconds", times.compute_seconds},
      {"exposed_communication_seconds", times.exposed_communication_seconds},
      {"characters_per_second", run.characters_per_second},
      {"digest", run.digest},
  };
  if (!run.unsaved.empty()) json["unsaved"] = run.unsaved;
  if (!run.chosen_policy.empty()) json["chosen_policy"] = run.chosen_policy;
  if (run.moe)
    json["mixtures"] = {{"experts", run.moe->experts},
                        {"gate", run.moe->gate},
                        {"overlap", run.moe->overlap},
                        {"parts", run.moe->parts},
                        {"all_to_alls_per_step", run.moe->all_to_alls},
                        {"sent_bytes_per_step", run.moe->sent_bytes},
                        {"all_to_all_seconds", run.moe->seconds},
                        {"waited_seconds", run.moe->waited_seconds},
                        {"dropped_share", run.moe->dropped_share},
                        {"balance", run.moe->balance}};
  if (run.tuning) json["tuning"] = document_of(*run.tuning);
  return json;
}

Json json_of(const Comparison& comparison) {
  Json speed_ups = Json::array();
  for (const auto& [policy, ratio] : comparison.speed_ups) {
    speed_ups.push_back(
        {{"policy", policy}, {"median", ratio.median}, {"q1", ratio.first}, {"q3", ratio.third}});
  }
  return {{"first", comparison.speed_ups.front().policy},
          {"rounds", comparison.rounds},
          {"counted_rounds", comparison.counted_rounds},
          {"quiet", comparison.quiet},
          {"remark", comparison.remark},
          {"speed_up", std::move(speed_ups)}};
}

}  // namespace

std::string to_json(const TrainResult& run) { return json_of(run).dump(2) + "\n"; }

std::string to_json(const std::vector<TrainResult>& runs, const Comparison& comparison) {
  Json list = Json::array();
  for (const TrainResult& run : runs) {
    list.push_back(json_of(run));
  }
  return Json{{"runs", std::move(list)}, {"comparison", json_of(comparison)}}.dump(2) + "\n";
}

}  // namespace dear::train_command
