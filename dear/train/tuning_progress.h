#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dear/cluster/network.h"
#include "dear/fusion/size_candidates.h"
#include "dear/tune/trial.h"

// What DataParallel::tuning() tells.
namespace dear {

// The network as it was found: before anything was tried, and after each drift.
struct MeasuredNetwork {
  std::int64_t at_iteration = 0;  // counts from the first step of training
  Link link;
};

// What tuning did. Predictions, trials and expectations are there on rank 0 alone, which makes them.
struct TuningProgress {
  SizeCandidates sizes;                   // what could be tried; empty until the first step
  std::vector<MeasuredNetwork> networks;  // oldest first; the same on every rank
  std::vector<double>
      predicted;  // by candidate, seconds of an iteration in the simulator on the last of them
  std::vector<tune::Trial> trials;              // at_iteration counts from the first step of training
  std::vector<tune::Expectation> expectations;  // by candidate
  std::size_t running = 0;                      // the candidate in force
  bool settled = false;                         // it is the choice, until a drift
  double paid_seconds = 0;                      // for changes
  std::string cache_error{};                    // why the cache could not be written; "" when it could
};

}  // namespace dear
