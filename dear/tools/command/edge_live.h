#pragma once

#include <vector>

#include "dear/tools/edge_command/edge_options.h"
#include "dear/tools/options/add_command.h"
#include "dear/tools/options/option_adder.h"

namespace dear::cli {

// Options of groups that are drawn; what they return says whether one was given.
std::vector<CLI::Option*> add_groups_to(const OptionAdder& add, edge_command::PlanOptions& options);

// Adds the commands that ranks carry out: `dear edge train`, `dear edge average`.
void add_edge_train(CLI::App& edge);
void add_edge_average(CLI::App& edge);

}  // namespace dear::cli
