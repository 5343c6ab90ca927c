#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/base/units.h"
#include "dear/fusion/grouping.h"
#include "dear/tune/candidates.h"
#include "dear/workload/workload.h"

namespace dear {

// Bucket sizes to choose from, on a logarithmic scale; the upper end holds everything in one bucket a dtype.
struct SizeRange {
  std::int64_t low_bytes = 64 * kKiB;
  std::size_t points = 129;  // thresholds that are looked at
};

// What can be tried: the distinct groupings that sizes give. The threshold of a candidate, in bytes, is its
// value, and stands for all that give the same buckets; its name is that threshold as text, or "all".
struct SizeCandidates {
  tune::Candidates candidates;
  std::vector<Grouping> groupings;  // of candidates
};

// The smallest size first. ConfigError for a workload that validate() refuses, and for a range without a
// point or a byte.
SizeCandidates size_candidates(const Workload& workload, const SizeRange& range = {});

// One more, by name, that stands beside the sizes; its neighbour is the size that gives nearly as many
// buckets. The candidate, which is an older one where that has the same buckets.
std::size_t add_grouping(SizeCandidates& sizes, std::string name, Grouping grouping);

// The candidate by size that has the buckets of this threshold, or the nearest when none has.
std::size_t candidate_of_size(const SizeCandidates& sizes, std::int64_t threshold_bytes);

}  // namespace dear
