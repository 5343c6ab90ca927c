#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dear/systems/train_command/interleaving.h"
#include "dear/systems/train_command/train_run.h"

namespace dear::train_command {

using StartTraining = std::function<std::unique_ptr<TrainingJob>(const TrainRun& run)>;

// Called after each step: whose turn it is, steps done by all policies together, this rank's loss, seconds
// since the first step began.
using TurnListener = std::function<void(const Turn& turn, std::int64_t done, double loss, double seconds)>;

struct TrainedInTurns {
  std::vector<TrainResult> results;  // in the order of the runs, their times of the steps that count
  std::vector<Turn> turns;           // that were taken: all, or those of whole rounds until an interruption
};

// Trains one policy for each of `runs`, whose jobs all live until the end, and has one pause for the next as
// `turns` says. A job that is interrupted ends all at the end of the round, where all have taken as many
// steps. Every rank of the group calls it alike. `listener` may be empty. Throws what a job throws.
TrainedInTurns train_interleaved(std::vector<TrainRun> runs, std::vector<Turn> turns,
                                 const StartTraining& start, const TurnListener& listener);

}  // namespace dear::train_command
