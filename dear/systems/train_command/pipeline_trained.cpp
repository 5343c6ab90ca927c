#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/units.h"
#include "dear/systems/train_command/pipeline_training.h"

namespace dear::train_command {

std::string to_json(const PipelineTrained& trained) {
  const Spread& seconds = trained.counted_seconds;
  nlohmann::ordered_json json{{"workers", trained.workers},
                              {"micro_batches", trained.micro_batches},
                              {"steps", trained.losses.size()},
                              {"resumed_at", trained.resumed_at},
                              {"network", trained.network},
                              {"stages", trained.planned.stages},
                              {"plan", nlohmann::ordered_json::parse(trained.planned.plan)},
                              {"losses", trained.losses},
                              {"step_seconds", trained.step_seconds},
                              {"median_seconds", seconds.median},
                              {"p10_seconds", seconds.p10},
                              {"p90_seconds", seconds.p90},
                              {"predicted_seconds", trained.planned.predicted_seconds},
                              {"sent_bytes_per_step", trained.sent_bytes}};
  if (!trained.unsaved.empty()) json["unsaved"] = trained.unsaved;
  return json.dump(2) + "\n";
}

std::string to_text(const PipelinePlanned& planned, const PipelineJob& job) {
  std::string text = fmt::format(
      "training a GPT of {} parameters ({} blocks, width {}, context {}), {} samples in a step, optimiser "
      "{}\n",
      planned.parameters, job.gpt.layers, job.gpt.width, job.gpt.context, job.gpt.batch, job.optimizer);
  for (const std::string& stage : planned.stages) text += stage + "\n";
  return text + fmt::format("the plan says {} a step\n", format_seconds(planned.predicted_seconds));
}

std::string to_text(const PipelineTrained& trained) {
  const Spread& seconds = trained.counted_seconds;
  return fmt::format(
      "\nloss {:.4f} in the first step, {:.4f} in the last\n"
      "a step took {} ({} to {}), {:.2f} times what the plan says; {} sent in it by all workers\n",
      trained.losses.front(), trained.losses.back(), format_seconds(seconds.median),
      format_seconds(seconds.p10), format_seconds(seconds.p90),
      seconds.median / trained.planned.predicted_seconds,
      format_bytes(static_cast<std::int64_t>(trained.sent_bytes)));
}

}  // namespace dear::train_command
