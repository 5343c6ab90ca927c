#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/base/vocabulary/units.h"
#include "dear/predict/tune/candidates.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// Thresholds to choose from, on a logarithmic scale. The largest puts all tensors of a dtype into one bucket.
struct SizeRange {
  std::int64_t low_bytes = 64 * kKiB;
  std::size_t points = 129;  // number of thresholds
};

// The distinct groupings that the thresholds give. The value of a candidate is a threshold in bytes, which
// stands for all thresholds with the same buckets; its name is the threshold as text, or "all".
struct SizeCandidates {
  tune::Candidates candidates;
  std::vector<Grouping> groupings;  // of candidates
};

// The candidates of a workload, the smallest threshold first. ConfigError for a workload that validate()
// refuses, and for a range without a point or a byte.
SizeCandidates size_candidates(const Workload& workload, const SizeRange& range = {});

// Adds a grouping under a name beside those by size; its neighbour is the threshold that gives nearly as many
// buckets. Returns the candidate, which is an existing one if that has the same buckets.
std::size_t add_grouping(SizeCandidates& sizes, std::string name, Grouping grouping);

// The candidate with the buckets of this threshold, or the one nearest to it.
std::size_t candidate_of_size(const SizeCandidates& sizes, std::int64_t threshold_bytes);

}  // namespace dear
