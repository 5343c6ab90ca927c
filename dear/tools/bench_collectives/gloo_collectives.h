#pragma once

#include <memory>

#include "dear/tools/bench_collectives/collectives.h"

namespace dear::bench_collectives {

// Gloo's own collectives, as a program on Gloo calls them. ConfigError where Gloo is missing.
std::unique_ptr<Collectives> open_gloo_collectives(const LibraryOptions& options);

}  // namespace dear::bench_collectives
