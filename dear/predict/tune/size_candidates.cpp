#include "dear/predict/tune/size_candidates.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

namespace dear {
namespace {

// Buckets by size are consecutive layers, so the first tensors of all buckets identify the grouping.
std::string key_of(const Grouping& grouping) {
  std::string key;
  for (const Bucket& bucket : grouping.buckets()) key += std::to_string(bucket.tensors.front()) + " ";
  return key;
}

std::int64_t threshold_of(const std::vector<double>& values) { return std::llround(values.front()); }

Grouping by_size(const Workload& workload, std::int64_t threshold_bytes) {
  return group(workload, BySize{.threshold_bytes = threshold_bytes});
}

bool same(const Grouping& one, const Grouping& other) {
  return std::equal(one.buckets().begin(), one.buckets().end(), other.buckets().begin(),
                    other.buckets().end(), [](const Bucket& a, const Bucket& b) {
                      return a.tensors == b.tensors && a.chunk_bytes == b.chunk_bytes;
                    });
}

}  // namespace

SizeCandidates size_candidates(const Workload& workload, const SizeRange& range) {
  validate(workload);
  const std::int64_t everything = workload.bytes() + 1;  // a bucket that would reach it is closed before
  const auto low = static_cast<double>(std::min(range.low_bytes, everything));
  SizeCandidates sizes;
  sizes.candidates = tune::candidates_on_grid(
      {{.name = "bucket bytes", .low = low, .high = static_cast<double>(everything)}},
      [&](const std::vector<double>& values) { return key_of(by_size(workload, threshold_of(values))); },
      {.points = range.points,
       .name = [](const std::vector<double>& values) { return format_bytes(threshold_of(values)); }});
  for (const tune::Candidate& candidate : sizes.candidates)
    sizes.groupings.push_back(by_size(workload, threshold_of(candidate.values)));
  if (same(sizes.groupings.back(), group(workload, AllInOne{}))) sizes.candidates.back().name = "all";
  return sizes;
}

std::size_t add_grouping(SizeCandidates& sizes, std::string name, Grouping grouping) {
  std::size_t like = 0;
  std::size_t least = SIZE_MAX;
  for (std::size_t i = 0; i < sizes.groupings.size(); ++i) {
    if (same(sizes.groupings[i], grouping)) return i;
    const std::size_t a = sizes.groupings[i].size();
    const std::size_t b = grouping.size();
    const std::size_t away = a > b ? a - b : b - a;
    if (sizes.candidates[i].values.empty() || away >= least) continue;
    least = away;
    like = i;
  }
  tune::add_apart(sizes.candidates, std::move(name), like);
  sizes.groupings.push_back(std::move(grouping));
  return sizes.groupings.size() - 1;
}

std::size_t candidate_of_size(const SizeCandidates& sizes, std::int64_t threshold_bytes) {
  std::size_t nearest = 0;
  double least = HUGE_VAL;
  for (std::size_t i = 0; i < sizes.candidates.size(); ++i) {
    const std::vector<double>& values = sizes.candidates[i].values;
    if (values.empty()) continue;
    const double away = std::abs(std::log(values.front() / static_cast<double>(threshold_bytes)));
    if (away >= least) continue;
    least = away;
    nearest = i;
  }
  return nearest;
}

}  // namespace dear
