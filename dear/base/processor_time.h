#pragma once

#include <ctime>

namespace dear {

// What all threads of this process have used of processors, in seconds; of two readings the difference
// counts.
inline double processor_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace dear
