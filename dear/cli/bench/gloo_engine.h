#pragma once

#include <memory>
#include <string>

#include "dear/cli/bench/engine.h"
#include "dear/collective/backends.h"

// What needs libtorch: one source, and a stub for builds without it.
namespace dear::cli::bench {

// Gloo's own collectives through libtorch, as a program on c10d calls them. ConfigError in a build without
// it.
std::unique_ptr<Engine> open_gloo_engine(const EngineOptions& options);
// Why this build lacks it; "" when it does not.
std::string gloo_missing();

// Further backends of DeAR's, for init().
const BackendTable& torch_backends();

}  // namespace dear::cli::bench
