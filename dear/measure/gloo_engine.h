#pragma once

#include <memory>

#include "dear/measure/engine.h"

namespace dear::measure {

// Gloo's own collectives, as a program on Gloo calls them. ConfigError where Gloo is missing.
std::unique_ptr<Engine> open_gloo_engine(const EngineOptions& options);

}  // namespace dear::measure
