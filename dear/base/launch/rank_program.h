#pragma once

#include <csignal>
#include <sys/resource.h>

#include "dear/base/launch/causes.h"
#include "dear/base/launch/launcher.h"
#include "dear/base/launch/rank_environment.h"
#include "dear/base/launch/rank_process.h"
#include "dear/base/launch/records.h"
#include "dear/base/membership/board.h"

namespace dear::launch {

// Ranks on this host find all of this in their environment, besides torchrun's variables.
struct Surroundings {
  const Job& job;
  const Records& records;
  const Causes& causes;
  const membership::Board* board = nullptr;  // where ranks may come and go
  sigset_t signal_mask{};                    // of the launcher, before it held signals
  rlimit open_files{};
};

RankProgram program_of(const LaunchOptions& options, int rank, const Surroundings& here);
// For kill_strays(): in the environment of the ranks of this launcher alone.
std::string mark_of(const Causes& causes);

}  // namespace dear::launch
