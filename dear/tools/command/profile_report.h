#pragma once

#include <cstddef>
#include <string>

#include "dear/systems/train_command/profile_run.h"

namespace dear::cli {

// Lines of text, each ended, on passes, steps, and the `layers` layers that take longest.
std::string to_text(const train_command::ModelProfile& profile, std::size_t layers);

}  // namespace dear::cli
