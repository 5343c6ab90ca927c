#pragma once

#include "dear/schedule/policies/schedule.h"

namespace dear::conductor {

// ScheduleError for a schedule that can only be simulated, or that has several network lanes.
void require_runnable(const Schedule& schedule);

}  // namespace dear::conductor
