#pragma once

#include <string>

#include "dear/schedule/policies/fusion_choice.h"
#include "dear/train/data_parallel/bucket_choice.h"
#include "dear/train/tuning/tuned.h"

namespace dear {

// The buckets that the rule names, for a DataParallel; `cache` is TuningOptions::cache of those that are
// tuned.
inline BucketChoice choice_of(const FusionChoice& rule, const std::string& cache) {
  switch (rule.kind) {
    case FusionChoice::Kind::given:
      return given(rule.fusion);
    case FusionChoice::Kind::planned:
      return planned(rule.fusion);
    case FusionChoice::Kind::tuned:
    case FusionChoice::Kind::usual:  // of a simulation
      break;
  }
  return tuned({.start = rule.fusion, .cache = cache});
}

}  // namespace dear
