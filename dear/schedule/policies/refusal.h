#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/schedule.h"

// Messages of the checks of schedules.
namespace dear::schedule {

template <typename... Args>
[[noreturn]] void refuse(const Schedule& schedule, fmt::format_string<Args...> format, Args&&... args) {
  throw ScheduleError(fmt::format("schedule of policy {}: {}", schedule.policy(),
                                  fmt::format(format, std::forward<Args>(args)...)));
}

inline std::string describe(const Schedule& schedule, StepId step) {
  return fmt::format("step {} ({})", step, name_of(schedule.steps()[step].work));
}

}  // namespace dear::schedule
