#include "studies/report/duration.h"

#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"

namespace dear::studies {

std::string Duration::text(int tasks) const {
  constexpr double kMinute = 60, kHour = 3600;
  const double seconds = once_seconds + tasks * task_seconds;
  if (seconds < kMinute) return "seconds";
  const bool hours = seconds >= 2 * kHour;
  const auto count = static_cast<std::size_t>(std::lround(seconds / (hours ? kHour : kMinute)));
  return fmt::format("about {} on 2 cores", counted(count, hours ? "hour" : "minute"));
}

}  // namespace dear::studies
