#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "dear/cli/corpus.h"
#include "dear/cli/train_options.h"
#include "dear/cli/train_result.h"
#include "dear/collective/group.h"

namespace dear::cli {

// Called after each step: steps done, this rank's loss, seconds since the run began.
using StepListener = std::function<void(std::int64_t done, double loss, double seconds)>;

struct TrainRun {
  std::string policy;
  bool record_trace = false;   // fills TrainResult::trace and ::profile
  std::int64_t sample = 0;     // characters to generate at the end
  bool until_settled = false;  // ends early, when tuning has settled
  StepListener on_step;        // may be empty
};

// Trains a fresh model under one policy, on every rank of the group alike. Rank 0's result has the generated
// sample. ConfigError and MismatchError as DataParallel; MismatchError when the ranks end with different
// parameters.
TrainResult train(const TrainSettings& settings, const TrainRun& run, const Corpus& corpus,
                  const Group& group);

// This process computes with so many threads from now on. Before the first train().
void set_compute_threads(int threads);

std::int64_t parameter_count(const TrainSettings& settings, const Corpus& corpus);

}  // namespace dear::cli
