#pragma once

#include <cstdint>

#include "dear/platform/cost/collective_times.h"

namespace dear::methods::rounds {

// Training of a model by rounds on a cluster, for as many samples as without:
// every rank makes a whole step by itself, and after so many of them the
// parameters are averaged.
struct RoundJob {
  double step_seconds = 0;  // of the slowest rank: its passes, and the update of all parameters
  std::int64_t bytes = 0;   // of the parameters
  cost::CollectiveTimes times;
};

// Whether steps go on while parameters are averaged, as those of DiLoCo with a
// delay (Douillard et al. 2025, arXiv 2501.18512), or wait.
enum class Averaging : std::uint8_t { waits, overlaps };

// The mean of a round's steps.
struct RoundTimes {
  double seconds = 0;  // of a step
  double exposed_seconds = 0;
  double sent_bytes = 0;  // by a rank
};
// ConfigError for less than a step a round.
RoundTimes times_of_rounds(const RoundJob& job, std::int64_t steps, Averaging averaging);

// The least number of steps of a round whose mean step takes at most so many
// seconds; 0 where none does.
std::int64_t steps_for(const RoundJob& job, double seconds, Averaging averaging);

}  // namespace dear::methods::rounds
