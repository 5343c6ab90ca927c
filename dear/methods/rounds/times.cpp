#include "dear/methods/rounds/times.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::rounds {

RoundTimes times_of_rounds(const RoundJob& job, std::int64_t steps, Averaging averaging) {
  if (steps < 1) throw ConfigError(fmt::format("a round of {} steps cannot be: give at least 1", steps));
  const auto count = static_cast<double>(steps);
  const double average = job.times.all_reduce(job.bytes) / count;
  const double seconds =
      averaging == Averaging::waits ? job.step_seconds + average : std::max(job.step_seconds, average);
  const double ranks = job.times.ranks;
  return {.seconds = seconds,
          .exposed_seconds = seconds - job.step_seconds,
          .sent_bytes = 2 * (ranks - 1) / ranks * static_cast<double>(job.bytes) / count};
}

std::int64_t steps_for(const RoundJob& job, double seconds, Averaging averaging) {
  const double left = averaging == Averaging::waits ? seconds - job.step_seconds : seconds;
  if (left <= 0 || seconds < job.step_seconds) return 0;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::ceil(job.times.all_reduce(job.bytes) / left * (1 - 1e-12))));
}

}  // namespace dear::methods::rounds
