#pragma once

#include <ctime>

namespace dear::os {

// Processor time of all threads of this process, in seconds. The difference of two readings is what was used
// between them.
inline double processor_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace dear::os
