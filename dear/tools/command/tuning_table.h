#pragma once

#include <string>

#include "dear/systems/train_command/tuning_report.h"

namespace dear::cli {

// A line for each trial. Lines of text, each ended.
std::string table_of(const train_command::TuningReport& report);

}  // namespace dear::cli
