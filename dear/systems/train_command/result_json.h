#pragma once

#include <string>
#include <vector>

#include "dear/systems/train_command/train_comparison.h"
#include "dear/systems/train_command/train_result.h"

namespace dear::train_command {

// One object; keys `policy, workers, steps, network, fusion, optimizer, losses, step_seconds,
// iteration_seconds {median, p10, p90}, compute_seconds, exposed_communication_seconds,
// characters_per_second, digest`, `chosen_policy` where the policy is a choice, and `tuning` of buckets that
// were tuned. Times are seconds; a loss that is no number is null.
std::string to_json(const TrainResult& run);
// {"runs": [...], "comparison": {...}}: such objects, and an object with `first, rounds, counted_rounds,
// quiet, remark, speed_up`. `speed_up` has a {policy, median, q1, q3} for each run, over the policy `first`;
// where `quiet` is false they are not to be trusted, and `remark` says why.
std::string to_json(const std::vector<TrainResult>& runs, const Comparison& comparison);

}  // namespace dear::train_command
