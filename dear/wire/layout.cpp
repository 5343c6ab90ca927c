#include "dear/wire/layout.h"

#include <algorithm>

namespace dear {
namespace {

constexpr std::int64_t kAlignmentBytes = 64;

}  // namespace

BucketLayout lay_out(const Bucket& bucket, const Workload& workload,
                     const std::vector<std::uint32_t>& rule_of) {
  std::vector<TensorId> order = bucket.tensors;
  std::stable_sort(order.begin(), order.end(),
                   [&](TensorId a, TensorId b) { return rule_of.at(a) < rule_of.at(b); });

  const std::int64_t alignment = kAlignmentBytes / size_of(bucket.dtype);
  BucketLayout layout{.dtype = bucket.dtype, .elements = 0, .placements = {}, .runs = {}};
  for (const TensorId id : order) {
    const std::int64_t elements = workload.tensors.at(id).elements;
    const std::int64_t begin = layout.elements;
    layout.placements.push_back({id, begin, elements});
    layout.elements += (elements + alignment - 1) / alignment * alignment;
    if (layout.runs.empty() || layout.runs.back().rule != rule_of.at(id)) {
      layout.runs.push_back({rule_of.at(id), {begin, begin}});
    }
    layout.runs.back().range.end = layout.elements;
  }
  return layout;
}

std::vector<Run> runs_within(const BucketLayout& layout, const Range& range) {
  std::vector<Run> parts;
  for (const Run& run : layout.runs) {
    const Range part{std::max(run.range.begin, range.begin), std::min(run.range.end, range.end)};
    if (part.begin < part.end) parts.push_back({run.rule, part});
  }
  return parts;
}

}  // namespace dear
