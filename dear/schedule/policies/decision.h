#pragma once

#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// [Note: the decision of rank 0] What rank 0 decides between two steps of training (which buckets to try
// next) has to reach the other ranks, which wait for nothing then: a collective of its own would make them
// wait for everything that is on the network. So the decision is a step of the schedule, in every iteration:
// a broadcast of kDecisionBytes, first on the network lane, as soon as the first reduction may begin. It has
// come long before the iteration ends, and is in force in the next one.
//
// Returns the schedule with that step. Throws a ScheduleError when it has one already, or has no reduction.
Schedule with_decision(const Schedule& schedule, const Workload& workload, const Grouping& grouping);

}  // namespace dear
