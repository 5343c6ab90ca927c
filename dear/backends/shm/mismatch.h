#pragma once

#include <cstdint>
#include <vector>

#include "dear/backends/shm/control.h"
#include "dear/collective/request.h"

namespace dear::backends {

// The summary of a collective or of an allocation, for the peers. Buffers are given by number, 0 for none.
RequestSummary summarize(const Request& request, std::uint64_t buffer, std::uint64_t output_buffer);
RequestSummary summarize_allocation(std::int64_t bytes);
RequestSummary summarize_shared_allocation(std::int64_t bytes);

// A summary in two words, for what has to be said in the fewest bytes: two summaries of one
// sequence that have equal packed summaries ask for the same. `what` is 0 where there is no room for all it
// says.
PackedSummary packed(const RequestSummary& summary);

bool asks_the_same(const RequestSummary& one, const RequestSummary& other);

// `names`: what ranks are called, where not by their number. MismatchError, the same on every rank, that
// names the ranks which differ from rank 0 in the way the first of them does, and what both ask for.
void throw_on_mismatch(const std::vector<RequestSummary>& by_rank, const std::vector<int>& names = {});

}  // namespace dear::backends
