#pragma once

#include <cstddef>
#include <string>

#include "dear/demo/profile_run.h"

namespace dear::cli {

// Passes, steps and the layers that take longest, `layers` of them. Lines of text, each ended.
std::string to_text(const demo::ModelProfile& profile, std::size_t layers);

}  // namespace dear::cli
