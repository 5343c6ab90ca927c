#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dear/demo/train_run.h"
#include "dear/demo/train_turns.h"

namespace dear::demo {

using StartTraining = std::function<std::unique_ptr<TrainingJob>(const TrainRun& run)>;

// Called after each step: whose turn it is, steps done by all policies together, this rank's loss, seconds
// since the first step began.
using TurnListener = std::function<void(const Turn& turn, std::int64_t done, double loss, double seconds)>;

// Trains one policy for each of `runs`, whose jobs all live until the end, and interrupts one for the next as
// `turns` says. The results in the order of `runs`, their times of the steps that count. Every rank of the
// group calls it alike. `listener` may be empty. Throws what a job throws.
std::vector<TrainResult> train_in_turns(std::vector<TrainRun> runs, const std::vector<Turn>& turns,
                                        const StartTraining& start, const TurnListener& listener);

}  // namespace dear::demo
