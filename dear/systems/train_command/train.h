#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/comm/group/group.h"
#include "dear/systems/train_command/corpus.h"
#include "dear/systems/train_command/train_comparison.h"
#include "dear/systems/train_command/train_result.h"
#include "dear/systems/train_command/train_run.h"
#include "dear/systems/train_command/train_settings.h"

namespace dear::train_command {

// Called after each step: who trains, the steps that all policies have done, this rank's loss, seconds since
// the first step began.
using TrainListener =
    std::function<void(const std::string& label, std::int64_t done, double loss, double seconds)>;

// Says what a rank records besides its results.
struct Recording {
  bool traces = false;   // of every policy
  bool profile = false;  // of the last policy
};

struct Trained {
  std::vector<TrainResult> runs;                        // by policy
  std::optional<Comparison> comparison{};               // of several policies
  std::vector<std::pair<std::string, Trace>> traces{};  // of all ranks, by policy
  bool interrupted = false;                             // by SIGINT, after runs[0].steps of each policy
};

// Trains one policy, or several in turns, on the group's ranks, all of which call it alike. Several are
// recorded in up to 20 more steps of each, unless they were interrupted, since recording slows what it
// records. `say` is told of
// checkpoints. Loads the training module. Throws what a TrainingJob throws.
Trained train(const TrainSettings& settings, const Recording& recording, const Corpus& corpus,
              const Group& group, const TrainListener& listener, const Say& say);

}  // namespace dear::train_command
