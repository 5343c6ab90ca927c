#pragma once

#include <string>

#include "dear/schedule/fusion/grouping.h"
#include "dear/train/data_parallel/bucket_choice.h"

namespace dear {

// How buckets are tuned while training.
struct TuningOptions {
  Fusion start = {};                // the buckets that training begins with, until more is known
  std::string method = "bayesian";  // one of tune::methods()
  // A file, read and written by rank 0, in which each job finds again what it learned: by its tensors,
  // policy, number of ranks and network. "" for none. Every rank gives the same.
  std::string cache{};
  // What trials may cost, in iterations of the best buckets: see tune::SessionOptions.
  double budget_iterations = 16;
};

// Buckets that are tuned while training. After DataParallelOptions::profile_steps measured steps, other
// buckets are tried between steps until the fastest are known, and again when iterations become slower or
// faster by themselves. One rank alone keeps the buckets of `start`. DataParallel throws a ConfigError on
// every rank for a method that does not exist, and for a cache that rank 0 cannot use. In a DeAR that was
// built with DEAR_TUNING=OFF this function and tuned() throw a ConfigError.
BucketChoice tuned(TuningOptions options);

}  // namespace dear
