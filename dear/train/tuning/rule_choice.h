#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dear/schedule/policies/fusion_choice.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/bucket_choice.h"
#include "dear/train/tuning/tuned.h"

namespace dear {

// The buckets that the rule names, for a DataParallel; `cache` is TuningOptions::cache of those that are
// tuned. A `policy` of "auto" or "auto=NAME,..." (automatic_candidates()) is chosen by the first steps.
inline BucketChoice choice_of(const FusionChoice& rule, const std::string& cache, const std::string& policy) {
  BucketChoice buckets = rule.kind == FusionChoice::Kind::given ? given(rule.fusion)
                         : rule.kind == FusionChoice::Kind::planned
                             ? planned(rule.fusion)
                             : tuned({.start = rule.fusion, .cache = cache});
  std::vector<std::string> candidates = automatic_candidates(policy);
  return candidates.empty() ? buckets : with_chosen_policy(std::move(candidates), std::move(buckets));
}

}  // namespace dear
