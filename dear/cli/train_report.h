#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/cli/train_result.h"

namespace dear::cli {

// "1,234,567".
std::string with_separators(std::int64_t value);

// Whether a run ended with the same parameters as the first of them.
bool same_parameters(const TrainResult& first, const TrainResult& other);

// Lines of text, each ended.
std::string to_text(const TrainResult& run);  // loss, speed and digest of one run
std::string comparison_table(
    const std::vector<TrainResult>& runs);  // a line for each, speed-up over the first
// Of what Group says of itself; the first is "" for a real network.
std::string network_line(const std::string& modelled_network, const std::string& real_network);

// One object; keys `policy, workers, steps, network, fusion, optimizer, losses, iteration_seconds {median,
// p10, p90}, compute_seconds, exposed_communication_seconds, characters_per_second, digest`. Times are
// seconds; a loss that is no number is null.
std::string to_json(const TrainResult& run);
// {"runs": [...]} with such objects.
std::string to_json(const std::vector<TrainResult>& runs);

}  // namespace dear::cli
