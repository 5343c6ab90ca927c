#pragma once

#include <cstdint>
#include <vector>

#include "dear/backends/shm/control.h"
#include "dear/collective/request.h"

namespace dear::backends {

// What a rank announces of a collective. Buffers are given by number, 0 for none.
Announcement announce(const Request& request, std::uint64_t buffer, std::uint64_t output_buffer);
Announcement announce_allocation(std::int64_t bytes);
Announcement announce_shared_allocation(std::int64_t bytes);

// An announcement in two words, for what has to be said in the fewest bytes: two announcements of one
// sequence that have equal gists ask for the same. `what` is 0 where there is no room for all it says.
Gist gist_of(const Announcement& announcement);

bool asks_the_same(const Announcement& one, const Announcement& other);

// MismatchError, the same on every rank, that names the ranks which differ from rank 0 in the way the first
// of them does, and what both ask for.
void throw_on_mismatch(const std::vector<Announcement>& by_rank);

}  // namespace dear::backends
