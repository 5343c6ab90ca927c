#pragma once

#include <memory>

#include "dear/cli/bench/engine.h"

namespace dear::cli::bench {

// No collective at all: each rank copies its vector once, all at the same time. The floor for whatever has to
// move the vector through memory.
std::unique_ptr<Engine> make_memcpy_engine();

}  // namespace dear::cli::bench
