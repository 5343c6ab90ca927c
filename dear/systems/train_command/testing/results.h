#pragma once

#include <string>
#include <vector>

#include "dear/systems/train_command/train_comparison.h"
#include "dear/systems/train_command/train_result.h"

// Results of training for the tests of what is written and printed of them.
namespace dear::train_command::testing {

inline TrainResult run_of(const std::string& policy, double iteration, double exposed,
                          const std::string& digest) {
  return {.policy = policy,
          .workers = 4,
          .steps = 3,
          .network = "modelled: 1gbit",
          .fusion = "25MiB",
          .optimizer = "adamw",
          .losses = {4.5, 3.25, 2.125},
          .times = {.iteration_seconds = {.median = iteration, .p10 = iteration / 2, .p90 = iteration * 2},
                    .compute_seconds = iteration - exposed,
                    .exposed_communication_seconds = exposed},
          .characters_per_second = 1234567.4,
          .digest = digest};
}

inline Comparison comparison_of(const std::vector<double>& ratios) {
  Comparison comparison{.rounds = 12, .counted_rounds = 11};
  for (const double ratio : ratios) {
    comparison.speed_ups.push_back(
        {.policy = "policy of " + std::to_string(comparison.speed_ups.size()),
         .ratio = {.first = ratio - 0.125, .median = ratio, .third = ratio + 0.25}});
  }
  return comparison;
}

}  // namespace dear::train_command::testing
