#pragma once

#include <CLI/App.hpp>

namespace dear::cli {

// `dear models`: what --model takes by name, and the devices they are built for.
void add_models_command(CLI::App& app);
// `dear clusters`: what --cluster takes by name.
void add_clusters_command(CLI::App& app);

}  // namespace dear::cli
