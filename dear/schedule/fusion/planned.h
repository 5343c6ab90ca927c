#pragma once

#include "dear/platform/cost/collective_times.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// Says which computation the collectives of a bucket overlap with.
enum class Overlap : std::uint8_t {
  all_reduce,  // its all-reduce under the rest of backward
  decoupled,   // its reduce-scatter under the rest of backward, its all-gather under the next forward
  eager        // both under both, in the best order (eager_order.h)
};

// Buckets of unequal sizes, with the borders that make the iteration shortest. Buckets are small where
// nothing hides them: at the first layers, whose all-gather nothing precedes, and at the last layers, for
// whose gradients the idle network waits. They are large where start-up times would add up. A bucket holds
// consecutive layers of one dtype. For an eager order large buckets may be cut (Bucket::chunk_bytes).
// ConfigError for a workload that validate() refuses.
//
// [Note: borders] Dynamic programming over borders, front to back, on the closed recursion of a step with
// fixed times t(m) of collectives and no time for updates. For buckets 0, 1, ... in forward order, ready_k
// the end of the backward of the first layer of bucket k:
//   reduce-scatters go back to front, so the last one ends at max over k of (ready_k + sum of t over 0..k);
//   all-gathers follow front to back without a gap; the layers of bucket k begin when it is there and the
//   layers before are done.
// Where two beginnings have one border, the one that is not later in any of these (sum of reduce-scatters,
// last end, sum of all-gathers, end of forward) is kept; at most 64 others beside it, those that promise
// most. With all-reduces alone the earlier end is always better, and a single number is enough. The smaller
// problem is that of MG-WFBP (Shi et al. 2019, arXiv 1811.11141). For an eager order there is no recursion
// over borders: see [Note: borders of an eager order].
Grouping group_planned(const Workload& workload, const cost::CollectiveTimes& times, Overlap overlap);

// The iteration time that the recursion gives for any grouping whose buckets are consecutive layers. For an
// eager order it counts updates of shards, too.
double recursive_iteration_seconds(const Workload& workload, const Grouping& grouping,
                                   const cost::CollectiveTimes& times, Overlap overlap);

// Returns what no buckets and no order of their halves go below, for times of collectives that grow ever more
// slowly with bytes: least_seconds() of a chunk for each layer, where each byte takes what one more takes in
// the largest collective, and one layer, the worst for it, takes what it takes by itself; whatever bucket it
// travels in, that one has a start-up. It is max(f + b, r) and what nothing can hide: the first layer's
// halves after the backward and before the forward, the backward before the first bytes that count, the
// forward after the last.
double eager_floor_seconds(const Workload& workload, const cost::CollectiveTimes& times);

}  // namespace dear
