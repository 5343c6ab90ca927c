#pragma once

#include <string>

#include "dear/demo/tuning_report.h"

namespace dear::cli {

// A line for each trial. Lines of text, each ended.
std::string table_of(const demo::TuningReport& report);

}  // namespace dear::cli
