#pragma once

#include <string>

#include "dear/fusion/grouping.h"

namespace dear {

// How buckets are tuned while training.
struct TuningOptions {
  Fusion start = {};                // what runs until more is known
  std::string method = "bayesian";  // of tune::methods()
  // A file, read and written by rank 0, where each job finds again what it learned: by its tensors, policy,
  // number of ranks and network. "" for none. Every rank gives the same.
  std::string cache{};
  // What trying may cost, in iterations of the best buckets: see tune::SessionOptions.
  double budget_iterations = 16;
};

}  // namespace dear
