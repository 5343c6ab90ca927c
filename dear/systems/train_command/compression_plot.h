#pragma once

#include <string>
#include <vector>

#include "dear/systems/train_command/train_result.h"

namespace dear::train_command {

// The loss of each run against the bytes that a rank has sent, and against the seconds that its steps took:
// two panels with the same losses, smoothed over a twentieth of the steps. SVG. The runs have taken equally
// many steps, at least one. ConfigError where there is no run.
std::string plot_of_compressions(const std::vector<TrainResult>& runs);

}  // namespace dear::train_command
