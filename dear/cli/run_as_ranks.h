#pragma once

#include <functional>
#include <string>

#include "dear/backends/environment.h"

namespace dear::cli {

// The launcher binds ranks where this option was given; they do not get it.
inline constexpr const char* kBindOption = "--bind";

struct Ranks {
  int workers = 1;
  bool bind = false;
};

// Runs `run_rank` on all ranks of a command that starts itself again as each of them: in this process where a
// launcher has started it as a rank, or where there is one rank alone, else in `workers` processes. `prepare`
// comes first, in each of these processes, and checks what was given. What a rank throws is said under its
// name, as ranks share one standard error; what every rank throws alike, once. ExitStatus when a rank failed.
void run_as_ranks(const std::string& command, const std::function<Ranks(const LaunchEnvironment&)>& prepare,
                  const std::function<void()>& run_rank);

}  // namespace dear::cli
