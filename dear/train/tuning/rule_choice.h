#pragma once

#include <string>

#include "dear/schedule/fusion/bucket_rule.h"
#include "dear/train/data_parallel/bucket_choice.h"
#include "dear/train/tuning/tuned.h"

namespace dear {

// The buckets that the rule names, for a DataParallel; `cache` is TuningOptions::cache of those that are
// tuned.
inline BucketChoice choice_of(const BucketRule& rule, const std::string& cache) {
  switch (rule.kind) {
    case BucketRule::Kind::given:
      return given(rule.fusion);
    case BucketRule::Kind::planned:
      return planned(rule.fusion);
    case BucketRule::Kind::tuned:
      break;
  }
  return tuned({.start = rule.fusion, .cache = cache});
}

}  // namespace dear
