#include "dear/base/vocabulary/deadline.h"

#include <time.h>

namespace dear {

SteadyTime recent_time() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return SteadyTime(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

}  // namespace dear
