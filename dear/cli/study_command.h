#pragma once

#include <CLI/App.hpp>

namespace dear::cli {

void add_study_command(CLI::App& app);  // `dear study paper`

}  // namespace dear::cli
