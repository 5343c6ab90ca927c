#pragma once

#include <cstdint>
#include <vector>

#include "dear/comm/group/request.h"
#include "dear/comm/shm/control.h"

namespace dear::backends {

// The summary of a collective, for the peers. Buffers are given by number, 0 for none.
RequestSummary summarize(std::uint64_t sequence, const Request& request, std::uint64_t buffer,
                         std::uint64_t output_buffer);

// Packs a summary into two words: two summaries of one sequence whose packed summaries are equal ask for the
// same. `what` is 0 where the words have no room for the summary.
PackedSummary packed(const RequestSummary& summary);

bool asks_the_same(const RequestSummary& one, const RequestSummary& other);

// Throws a MismatchError, the same on every rank, unless all summaries ask for the same. It names the ranks
// that differ from rank 0 in the way the first of them does, and what both ask for. `names` are the numbers
// that messages use for ranks; empty: their own.
void throw_on_mismatch(const std::vector<RequestSummary>& by_rank, const std::vector<int>& names = {});

}  // namespace dear::backends
