#pragma once

#include <cstdint>
#include <string>

#include "dear/systems/edge/partel.h"
#include "dear/tools/edge_command/edge_options.h"

namespace dear::edge_command {

// Options of `dear edge train`, as typed.
struct TrainOptions {
  PlanOptions plan{.groups = 3, .parameters = 100'000};
  std::string scheme = "joint", model = "logistic", timeout = "120s", json;
  std::int64_t hidden = 200, features = 16, samples = 400, iterations = 20;
  double step_size = 1;
};
struct TrainSettings {
  systems::edge::PartelJob job;
  std::string described;  // the groups, in words
};
// ConfigError for what cannot be.
TrainSettings check(const TrainOptions& options);

// "parameters" or "hidden units": what blocks are made of.
std::string units_of(const systems::edge::PartelJob& job);
// Lines, each ended: for each worker the time that was planned and the one that it took, then the iterations.
std::string to_text(const systems::edge::PartelJob& job, const systems::edge::PartelTrained& trained);
std::string to_json(const systems::edge::PartelJob& job, const systems::edge::PartelTrained& trained);
// Error where the parameters are not those of gradient descent in one process.
void require_descent(const systems::edge::PartelTrained& trained);

}  // namespace dear::edge_command
