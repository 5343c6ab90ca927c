#pragma once

#include <CLI/App.hpp>

namespace dear::cli {

void add_plan_command(CLI::App& app);  // `dear plan`

}  // namespace dear::cli
