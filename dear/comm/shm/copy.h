#pragma once

#include <cstddef>
#include <cstdint>

namespace dear::backends {

// Where written bytes are afterwards: in the caches, or in memory without a trip through them. Streamed
// stores need not read the destination first and leave the caches as they are, but their bytes are slow to
// read again at once.
enum class Stores : std::uint8_t { cached, streamed };

// The faster kind of stores when the ranks of this host work on `bytes` together: streamed where the last
// cache cannot hold them beside anything else.
Stores stores_for(std::int64_t bytes);

// Copies memory that does not overlap. Streamed stores are visible to a thread that has seen a later release
// of this thread.
void copy(std::byte* to, const std::byte* from, std::int64_t bytes, Stores stores);

}  // namespace dear::backends
