#pragma once

#include <cstdint>

#include "dear/cost/collective_times.h"
#include "dear/fusion/grouping.h"
#include "dear/schedule/step.h"
#include "dear/workload/workload.h"

namespace dear {

// What a collective of a schedule carries, and how long that takes: 0 for a kind that has no time in `times`.
std::int64_t bytes_of(const Communicate& work, const Workload& workload, const Grouping& grouping);
double seconds_of(const Communicate& work, const Workload& workload, const Grouping& grouping,
                  const cost::CollectiveTimes& times);
double seconds_of(CollectiveOp op, std::int64_t bytes, const cost::CollectiveTimes& times);

}  // namespace dear
