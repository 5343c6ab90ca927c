#pragma once

#include "dear/schedule/schedule.h"

namespace dear::exec {

// ScheduleError for a schedule that can only be simulated, or that has several network lanes.
void require_runnable(const Schedule& schedule);

}  // namespace dear::exec
