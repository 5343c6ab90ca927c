#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dear/tools/cases/cases.h"
#include "dear/tools/cases/rounds_cases.h"

namespace dear::cli {

// Prints each of the lines once, and that all times below are modelled.
void print_jobs(const std::vector<std::string>& lines);
// The same of the jobs of the scenarios.
void print_scenarios(const std::vector<cases::Scenario>& scenarios);
// Prints how fast the codecs of compressed cases are taken to be.
void print_codecs(const std::vector<cases::Case>& cases);
// A line for each case; speed-ups are over the first of every `lines`, those of one scenario.
std::string table_of(const std::vector<cases::Case>& cases, std::size_t lines);
// A line for each number of steps, and when rounds pay.
std::string table_of(const std::vector<cases::RoundsCase>& rounds);

}  // namespace dear::cli
