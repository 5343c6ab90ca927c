#pragma once

#include <cstdint>

#include "dear/cost/collective_times.h"
#include "dear/fusion/grouping.h"
#include "dear/schedule/step.h"
#include "dear/workload/workload.h"

namespace dear {

// What a collective of a schedule carries, and how long that takes: 0 for a kind that has no time in `times`.
// Across nodes it is the bytes of all shards of a node, which travel at once.
std::int64_t bytes_of(const Communicate& work, const Workload& workload, const Grouping& grouping);
double seconds_of(const Communicate& work, const Workload& workload, const Grouping& grouping,
                  const cost::CollectiveTimes& times);
// Of bytes [begin, end) of a bucket whose pieces are on their way together: the first has the start-up of
// all, a later one takes what its bytes add.
double seconds_of_joint(Collective op, std::int64_t begin, std::int64_t end,
                        const cost::CollectiveTimes& times);
// Of the workload's update_seconds what falls to the update: by bytes, and of a shard by the ranks that have
// one each.
double seconds_of(const Update& work, const Workload& workload, const Grouping& grouping, int shards);
double seconds_of(Collective collective, std::int64_t bytes, const cost::CollectiveTimes& times);

}  // namespace dear
