#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/demo/train_comparison.h"
#include "dear/demo/train_result.h"

namespace dear::cli {

// "1,234,567".
std::string with_separators(std::int64_t value);

// Lines of text, each ended.
std::string to_text(const demo::TrainResult& run);  // loss, speed and digest of one run
// A line for each policy, then how turns were taken and, where the machine was not quiet, a sentence that
// says so; speed-ups have a question mark then.
std::string to_text(const std::vector<demo::TrainResult>& runs, const demo::Comparison& comparison);
// Of what Group says of itself; the first is "" for a real network.
std::string network_line(const std::string& modelled_network, const std::string& real_network);

}  // namespace dear::cli
