#include "dear/wire/layout.h"

#include <algorithm>

namespace dear::wire {
namespace {

constexpr std::int64_t kAlignmentBytes = 64;

}  // namespace

BucketLayout lay_out(const Bucket& bucket, const Workload& workload,
                     const std::vector<std::uint32_t>& group_of) {
  std::vector<TensorId> order = bucket.tensors;
  std::stable_sort(order.begin(), order.end(),
                   [&](TensorId a, TensorId b) { return group_of.at(a) < group_of.at(b); });

  const std::int64_t alignment = kAlignmentBytes / size_of(bucket.dtype);
  BucketLayout layout{.dtype = bucket.dtype, .elements = 0, .placements = {}, .runs = {}};
  for (const TensorId id : order) {
    const std::int64_t elements = workload.tensors.at(id).elements;
    const std::int64_t begin = layout.elements;
    layout.placements.push_back({id, begin, elements});
    layout.elements += (elements + alignment - 1) / alignment * alignment;
    if (layout.runs.empty() || layout.runs.back().parameter_group != group_of.at(id)) {
      layout.runs.push_back({group_of.at(id), {begin, begin}});
    }
    layout.runs.back().range.end = layout.elements;
  }
  return layout;
}

Range part_of(const Range& chunk, std::int64_t bucket_bytes, std::int64_t elements, DType dtype) {
  const std::int64_t alignment = kAlignmentBytes / size_of(dtype);
  const auto border = [&](std::int64_t byte) {
    if (byte <= 0) return std::int64_t{0};
    if (byte >= bucket_bytes) return elements;
    const double share = static_cast<double>(byte) / static_cast<double>(bucket_bytes);
    return static_cast<std::int64_t>(share * static_cast<double>(elements / alignment)) * alignment;
  };
  return {border(chunk.begin), border(chunk.end)};
}

std::vector<Run> runs_within(const BucketLayout& layout, const Range& range) {
  std::vector<Run> parts;
  for (const Run& run : layout.runs) {
    const Range part = intersection(run.range, range);
    if (!part.empty()) parts.push_back({run.parameter_group, part});
  }
  return parts;
}

}  // namespace dear::wire
