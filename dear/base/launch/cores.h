#pragma once

#include <optional>
#include <vector>

namespace dear::launch {

// The cores of this host that this process may run on, by number; never empty.
std::vector<int> usable_cores();

// The part of `cores` that is `rank`'s: consecutive cores that no other rank has. Where there are more ranks
// than cores, the part is one core that neighbouring ranks share.
std::vector<int> cores_of_rank(const std::vector<int>& cores, int ranks, int rank);

// Binds the calling thread, and the threads that it starts from now on, to `cores`. Returns 0, or errno. Safe
// in a signal handler.
int bind_to(const std::vector<int>& cores) noexcept;

// The number of threads that OMP_NUM_THREADS gives the outermost parallel region, when it is set. ConfigError
// for anything but a number above 0.
std::optional<int> threads_of_environment();

}  // namespace dear::launch
