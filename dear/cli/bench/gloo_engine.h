#pragma once

#include <memory>

#include "dear/cli/bench/engine.h"

namespace dear::cli::bench {

// Gloo's own collectives, as a program on Gloo calls them. ConfigError where Gloo is missing.
std::unique_ptr<Engine> open_gloo_engine(const EngineOptions& options);

}  // namespace dear::cli::bench
