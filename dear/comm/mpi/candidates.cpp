#include "dear/comm/mpi/candidates.h"

#include <string>

#include "dear/base/vocabulary/units.h"
#include "dear/comm/mpi/measurements.h"

namespace dear::backends {
namespace {

// Across hosts the second is the longest that is sent at once, and the third for networks that are not TCP.
const std::vector<std::int64_t> kSegments = {8 * kKiB, 32 * kKiB, 128 * kKiB, kMiB};
const std::vector<std::int64_t> kSegmentsAcrossHosts = {kEagerSegment, 60 * kKiB, 128 * kKiB};
constexpr int kMostSegmentsOnOneHost = 64;

std::vector<std::string> algorithms(const message_programs::CollectiveCall& call,
                                    const CandidateOptions& options) {
  // A ring, where only neighbours talk, is the best that a wire offers; looking at the others would only take
  // time.
  const bool around =
      call.bytes > kLargestSumInOrder &&
      (call.collective == Collective::reduce_scatter ? options.sums_go_around : options.across_hosts);
  if (around) {
    return {kAround};
  }
  // All algorithms send the same messages between two ranks.
  if (call.collective == Collective::all_gather && call.ranks == 2) {
    return {"pairwise"};
  }
  std::vector<std::string> names;
  for (const message_programs::AlgorithmChoice& choice : message_programs::algorithm_choices(call)) {
    if (choice.algorithm != "gather" || call.bytes <= kMostGathered) {
      names.push_back(choice.algorithm);
    }
  }
  return names;
}

}  // namespace

std::vector<message_programs::AlgorithmChoice> candidates(const message_programs::CollectiveCall& call,
                                                          const CandidateOptions& options) {
  const std::int64_t part = call.bytes / call.ranks;
  std::vector<message_programs::AlgorithmChoice> all;
  for (const std::string& algorithm : algorithms(call, options)) {
    std::int64_t shorter = 0;
    for (const std::int64_t segment : options.across_hosts ? kSegmentsAcrossHosts : kSegments) {
      const bool too_many = !options.across_hosts && segment * kMostSegmentsOnOneHost < part;
      const bool cuts_nothing_either = shorter > 0 && shorter >= part;
      if (!too_many && !cuts_nothing_either) {
        all.push_back({.algorithm = algorithm, .segment_bytes = segment});
        shorter = segment;
      }
    }
  }
  return all;
}

}  // namespace dear::backends
