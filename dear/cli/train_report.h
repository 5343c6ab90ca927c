#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/demo/train_comparison.h"
#include "dear/demo/train_result.h"

namespace dear::cli {

// Why the losses of a run cannot be right, "" where they can: one is no number.
std::string wrong_losses(const demo::TrainResult& run);

// The number as "1,234,567".
std::string with_separators(std::int64_t value);

// The loss, speed and digest of one run. Lines of text, each ended.
std::string to_text(const demo::TrainResult& run);
// A line for each policy, then how turns were taken. Where the machine was not quiet, a sentence says so, and
// speed-ups have a question mark.
std::string to_text(const std::vector<demo::TrainResult>& runs, const demo::Comparison& comparison);
// A line for each compression: what it learned and sent, and how long its iterations took.
std::string table_of_compressions(const std::vector<demo::TrainResult>& runs,
                                  const demo::Comparison& comparison);
// A sentence on the network. `modelled_network` and `real_network` are what the group says of itself; the
// first is "" for a real network.
std::string network_line(const std::string& modelled_network, const std::string& real_network);

}  // namespace dear::cli
