#pragma once

#include <string>
#include <vector>

#include "dear/systems/train_command/train_comparison.h"
#include "dear/systems/train_command/train_result.h"

namespace dear::cli {

// Why the losses of a run cannot be right, "" where they can: one is no number.
std::string wrong_losses(const train_command::TrainResult& run);

// The loss, speed and digest of one run. Lines of text, each ended.
std::string to_text(const train_command::TrainResult& run);
// A line for each policy, then how turns were taken. Where the machine was not quiet, a sentence says so, and
// speed-ups have a question mark.
std::string to_text(const std::vector<train_command::TrainResult>& runs,
                    const train_command::Comparison& comparison);
// A line for each compression: what it learned and sent, and how long its iterations took.
std::string table_of_compressions(const std::vector<train_command::TrainResult>& runs,
                                  const train_command::Comparison& comparison);
// Writes to standard output, at once. Error where that fails.
void say(const std::string& text);
// A sentence on the network. `modelled_network` and `real_network` are what the group says of itself; the
// first is "" for a real network.
std::string network_line(const std::string& modelled_network, const std::string& real_network);

}  // namespace dear::cli
