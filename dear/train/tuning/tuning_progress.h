#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dear/platform/cluster/network.h"
#include "dear/predict/tune/size_candidates.h"
#include "dear/predict/tune/trial.h"

// What DataParallel::tuning() returns.
namespace dear {

// The network as the ranks measured it: before the first trial, and after each drift.
struct MeasuredNetwork {
  std::int64_t at_iteration = 0;  // counts from the first step of training
  Link link;
};

// What tuning did so far. Predictions, trials and expectations are those of rank 0, which makes them, and
// empty on the other ranks.
struct TuningProgress {
  SizeCandidates sizes;                   // what could be tried; empty until the first step
  std::vector<MeasuredNetwork> networks;  // oldest first; the same on every rank
  std::vector<double> predicted;    // by candidate, seconds of an iteration simulated on networks.back()
  std::vector<tune::Trial> trials;  // at_iteration counts from the first step of training
  std::vector<tune::Expectation> expectations;  // by candidate
  std::size_t running = 0;                      // the candidate in force
  bool converged = false;                       // `running` is the choice, until a drift
  double paid_seconds = 0;                      // the time that all changes of buckets took
  std::string cache_error{};                    // why the cache could not be written; "" when it could
};

}  // namespace dear
