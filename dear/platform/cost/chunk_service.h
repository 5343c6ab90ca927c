#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "dear/platform/algorithm/chunk_plan.h"
#include "dear/platform/cost/chunk_times.h"

namespace dear::cost {

// How a lane chooses the phase that it serves next among those that are ready.
enum class Service : std::uint8_t {
  first_ready,    // the one that became ready first; of several the lower chunk
  smallest_first  // the one of the fewest bytes; of several as in first_ready
};

// Serves the chunks of a plan that has orders, and writes down in which order each lane did: a lane that is
// free takes the next phase at once. Returns when the last one ends, in seconds; infinity, and an unfinished
// plan, where that is not before `give_up_seconds`.
double serve(const ChunkNetwork& network, Service service, algorithm::ChunkPlan& plan,
             double give_up_seconds = std::numeric_limits<double>::infinity());

// Sizes of `chunks` chunks that differ by a byte at most; their sum is `bytes`.
std::vector<std::int64_t> even_chunks(std::int64_t bytes, int chunks);

}  // namespace dear::cost
