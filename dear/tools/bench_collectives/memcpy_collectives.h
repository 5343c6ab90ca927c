#pragma once

#include <memory>

#include "dear/tools/bench_collectives/collectives.h"

namespace dear::bench_collectives {

// No collective: each rank copies its vector once, all at the same time. That is the floor for every
// operation that moves the vector through memory.
std::unique_ptr<Collectives> make_memcpy_collectives();

}  // namespace dear::bench_collectives
