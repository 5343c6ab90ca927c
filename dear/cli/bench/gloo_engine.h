#pragma once

#include <memory>
#include <string>

#include "dear/cli/bench/engine.h"

namespace dear::cli::bench {

// Gloo's own collectives through libtorch, as a program on c10d calls them; and DeAR's over Gloo's messages.
// ConfigError in a build without them.
std::unique_ptr<Engine> open_gloo_engine(const EngineOptions& options);
std::unique_ptr<Engine> open_c10d_gloo_engine(const EngineOptions& options);
// Why this build lacks them; "" when it does not.
std::string gloo_missing();
std::string c10d_gloo_missing();

}  // namespace dear::cli::bench
