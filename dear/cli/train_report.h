#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/cli/train_comparison.h"
#include "dear/cli/train_result.h"

namespace dear::cli {

// "1,234,567".
std::string with_separators(std::int64_t value);

// Whether a run ended with the same parameters as the first of them.
bool same_parameters(const TrainResult& first, const TrainResult& other);

// Lines of text, each ended.
std::string to_text(const TrainResult& run);  // loss, speed and digest of one run
// A line for each policy, then how turns were taken and, where the machine was not quiet, a sentence that
// says so; speed-ups have a question mark then.
std::string to_text(const std::vector<TrainResult>& runs, const Comparison& comparison);
// Of what Group says of itself; the first is "" for a real network.
std::string network_line(const std::string& modelled_network, const std::string& real_network);

// One object; keys `policy, workers, steps, network, fusion, optimizer, losses, step_seconds,
// iteration_seconds {median, p10, p90}, compute_seconds, exposed_communication_seconds,
// characters_per_second, digest`, and `tuning` of buckets that were tuned. Times are seconds; a loss that is
// no number is null.
std::string to_json(const TrainResult& run);
// {"runs": [...], "comparison": {...}}: such objects, and an object with `first, rounds, counted_rounds,
// quiet, remark, speed_up`. `speed_up` has a {policy, median, q1, q3} for each run, over the policy `first`;
// where `quiet` is false they are not to be trusted, and `remark` says why.
std::string to_json(const std::vector<TrainResult>& runs, const Comparison& comparison);

}  // namespace dear::cli
