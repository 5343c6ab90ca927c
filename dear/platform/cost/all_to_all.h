#pragma once

#include <cstdint>

#include "dear/platform/algorithm/pair_bytes.h"
#include "dear/platform/cluster/network.h"

// Times of all-to-alls whose blocks differ, on a flat network.
namespace dear::cost {

// How long an all-to-all-v by pairwise exchange takes (algorithm::pairwise_all_to_all_v), all ranks beginning
// at once, played message by message as in program_time.h: P - 1 rounds of counts, unless there are none,
// then P - 1 rounds of what they count. A message without bytes does not travel in the latter, and takes no
// time. ConfigError for pairs that are none.
double all_to_all_v_seconds(const Link& link, const algorithm::PairBytes& pairs);

// What Lancet charges for one of `parts` parts of an all-to-all (arXiv 2404.19429, section 4): a uniform
// all-to-all of 1/parts of the capacity. `bytes` is the whole of one rank's input at full capacity. Parts are
// uneven, but what they carry together is at most that. ConfigError for less than one part, and as in ring.h.
double part_of_all_to_all_seconds(const Link& link, int ranks, std::int64_t bytes, int parts);

}  // namespace dear::cost
