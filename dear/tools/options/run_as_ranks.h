#pragma once

#include <functional>
#include <string>

#include "dear/comm/backends/environment.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/group/group.h"

namespace dear::cli {

// The launcher binds ranks where this option was given; the ranks themselves do not get it.
inline constexpr const char* kBindOption = "--bind";

// The ranks that a command runs, and the group that they are.
struct Ranks {
  int workers = 1;
  bool bind = false;
  InitOptions group{};
  std::string settings;  // what has to be the same on all ranks, also when each was started by itself
};

// Runs `run_rank` on all ranks of a command that starts itself again as each of them. The call runs in this
// process where a launcher has started it as a rank, and where there is one rank alone; else in as many new
// processes as `prepare` returns workers. `prepare` checks the options, and is called first in each process.
// `said` is the line, or "", that says which backend carries the group. An exception of a rank ends the group
// on its peers, and is printed under the rank's number; one that every rank throws alike, once. ExitStatus
// when a rank failed.
void run_as_ranks(const std::string& command, const std::function<Ranks(const LaunchEnvironment&)>& prepare,
                  const std::function<void(const Group& group, const std::string& said)>& run_rank);

}  // namespace dear::cli
