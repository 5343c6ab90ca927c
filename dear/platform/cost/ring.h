#pragma once

#include <cstdint>

#include "dear/platform/cluster/network.h"

// Times of ring collectives on a flat network (Thakur, Rabenseifner, Gropp 2005,
// doi:10.1177/1094342005051521). P is the number of ranks, m the bytes of the whole vector, not of a rank's
// share; of an all-to-all, of one rank's input. All are 0 for one rank. ConfigError for less than one rank
// and for negative bytes.
namespace dear::cost {

// (P-1) alpha + (P-1)/P m beta
double ring_reduce_scatter_seconds(const Link& link, int ranks, std::int64_t bytes);
double ring_all_gather_seconds(const Link& link, int ranks, std::int64_t bytes);
double pairwise_all_to_all_seconds(const Link& link, int ranks, std::int64_t bytes);

// The sum of reduce-scatter and all-gather.
double ring_all_reduce_seconds(const Link& link, int ranks, std::int64_t bytes);

// (P-1) alpha + m beta
double pipelined_broadcast_seconds(const Link& link, int ranks, std::int64_t bytes);

// (P-1) alpha
double ring_barrier_seconds(const Link& link, int ranks);

}  // namespace dear::cost
