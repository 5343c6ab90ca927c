#pragma once

#include <memory>

#include "dear/cli/bench/engine.h"

namespace dear::cli::bench {

// Gloo's own collectives through libtorch, as a program on c10d calls them. A part of the module that needs
// libtorch (training_module.h). ConfigError where libtorch has no Gloo.
std::unique_ptr<Engine> make_gloo_engine(const EngineOptions& options);

}  // namespace dear::cli::bench
