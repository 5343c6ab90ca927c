#include "dear/train/metrics/step_metrics.h"

#include <nlohmann/json.hpp>

namespace dear::metrics {

std::string to_json_line(const StepMetrics& metrics, std::int64_t lost_lines) {
  nlohmann::ordered_json line{{"rank", metrics.rank},
                              {"ranks", metrics.ranks},
                              {"iteration", metrics.iteration},
                              {"steps", metrics.steps},
                              {"given_up", metrics.given_up},
                              {"seconds", metrics.seconds},
                              {"exposed_seconds", metrics.exposed_seconds},
                              {"communication_seconds", metrics.communication_seconds},
                              {"overlap", metrics.overlap},
                              {"bytes", metrics.bytes},
                              {"bandwidth", metrics.bandwidth},
                              {"buckets", metrics.buckets},
                              {"tuning", metrics.tuning},
                              {"candidate", metrics.candidate},
                              {"loss_scale", metrics.loss_scale},
                              {"gradient_norm", nullptr},
                              {"nonfinite", metrics.nonfinite},
                              {"resident_bytes", metrics.resident_bytes}};
  if (metrics.gradient_norm) line["gradient_norm"] = *metrics.gradient_norm;
  for (const auto& [name, value] : metrics.over_ranks)
    line["over_ranks"][name] = {{"min", value.min}, {"mean", value.mean}, {"max", value.max}};
  if (lost_lines > 0) line["lost_lines"] = lost_lines;
  return line.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace dear::metrics
