#pragma once

#include <cstdint>

#include "dear/platform/cost/collective_times.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/step.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// Bytes that a collective of a schedule carries. Of a collective across nodes: the bytes of all shards of a
// node, which travel at the same time.
std::int64_t bytes_of(const Communicate& work, const Workload& workload, const Grouping& grouping);
// How long a collective of a schedule takes; 0 for a collective that has no time in `times`.
double seconds_of(const Communicate& work, const Workload& workload, const Grouping& grouping,
                  const cost::CollectiveTimes& times);
// The time of a broadcast of all buffers, with the cost of each beside its bytes.
double seconds_of_buffers(const Workload& workload, const cost::CollectiveTimes& times);
// How long a collective of bytes [begin, end) of a bucket takes whose chunks are on their way together: the
// first chunk has the start-up of all, a later one takes what its bytes add.
double seconds_of_joint(Collective collective, std::int64_t begin, std::int64_t end,
                        const cost::CollectiveTimes& times);
// The part of Workload::update_seconds that an update takes: in proportion to its bytes, and for a shard
// divided by the number of `shards`.
double seconds_of(const Update& work, const Workload& workload, const Grouping& grouping, int shards);
// How long a collective of so many bytes takes; 0 for a collective that has no time in `times`.
double seconds_of(Collective collective, std::int64_t bytes, const cost::CollectiveTimes& times);

}  // namespace dear
