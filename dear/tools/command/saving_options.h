#pragma once

#include <CLI/CLI.hpp>

#include "dear/tools/command/train_options.h"

namespace dear::cli {

// Adds the options of checkpoints, of `dear train` and `dear pipeline train`, to a command, which the options
// outlive.
void add_saving_options(CLI::App& command, SavingOptions& options);

}  // namespace dear::cli
