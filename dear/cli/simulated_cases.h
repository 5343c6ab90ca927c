#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dear/study/cases.h"

namespace dear::cli {

// Prints the jobs of the scenarios, and that all times below are modelled.
void print_scenarios(const std::vector<study::Scenario>& scenarios);
// A line for each case; speed-ups are over the first of every `policies` lines.
std::string table_of(const std::vector<study::Case>& cases, std::size_t policies);

}  // namespace dear::cli
