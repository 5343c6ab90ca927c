#pragma once

#include <cstddef>
#include <cstdint>

namespace dear::backends {

// Where what is written should be afterwards: in the caches, or in memory without a trip through them. The
// second spares reading the destination first, and what the caches hold, but is slow to read again at once.
enum class Stores { cached, streamed };

// What pays when the ranks of this host together work on `bytes`: streamed where the last cache cannot hold
// them beside anything else.
Stores stores_for(std::int64_t bytes);

// The two do not overlap. With streamed stores, visible to whoever sees a later release of this thread.
void copy(std::byte* to, const std::byte* from, std::int64_t bytes, Stores stores);

}  // namespace dear::backends
