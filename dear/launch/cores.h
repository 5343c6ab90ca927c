#pragma once

#include <optional>
#include <vector>

namespace dear::launch {

// The cores of this host that this process may run on, by number; never empty.
std::vector<int> usable_cores();

// A rank's part of `cores`: consecutive ones and no other rank's, or, where ranks outnumber them, one core
// that it shares with its neighbours.
std::vector<int> cores_of_rank(const std::vector<int>& cores, int ranks, int rank);

// Has this process, and the threads that it starts from now on, run on these cores only. 0, or errno. Safe in
// a signal handler.
int bind_to(const std::vector<int>& cores) noexcept;

// How many threads OMP_NUM_THREADS gives the outermost parallel region, when it is set. ConfigError for what
// is no number above 0.
std::optional<int> threads_of_environment();

}  // namespace dear::launch
