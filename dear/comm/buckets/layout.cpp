#include "dear/comm/buckets/layout.h"

#include <algorithm>
#include <utility>

#include "dear/base/os/cache_line.h"

namespace dear::buckets {
namespace {

std::int64_t rounded_up(std::int64_t elements, std::int64_t unit) {
  return (elements + unit - 1) / unit * unit;
}

}  // namespace

std::int64_t unit_of(DType dtype, int ranks) { return ranks * (os::kCacheLineBytes / size_of(dtype)); }

BucketLayout lay_out(const Bucket& bucket, const Workload& workload,
                     const std::vector<std::uint32_t>& group_of, int ranks,
                     const std::vector<bool>& encoded) {
  struct Placed {
    TensorId id;
    bool dense;
  };
  std::vector<Placed> order;
  for (std::size_t i = 0; i < bucket.tensors.size(); ++i)
    order.push_back({bucket.tensors[i], encoded.empty() || !encoded[i]});
  std::stable_sort(order.begin(), order.end(), [&](const Placed& a, const Placed& b) {
    return std::pair(a.dense, group_of.at(a.id)) < std::pair(b.dense, group_of.at(b.id));
  });

  const std::int64_t line = unit_of(bucket.dtype, 1), unit = unit_of(bucket.dtype, ranks);
  BucketLayout layout{.dtype = bucket.dtype, .placements = {}, .runs = {}};
  const auto pad = [&] {
    layout.elements = rounded_up(layout.elements, unit);
    if (!layout.runs.empty()) layout.runs.back().range.end = layout.elements;
  };
  bool encoding = true;
  for (const auto& [id, dense] : order) {
    if (encoding && dense) {
      pad();
      layout.encoded_elements = layout.elements;
      encoding = false;
    }
    const std::int64_t elements = workload.tensors.at(id).elements;
    const std::int64_t begin = layout.elements;
    layout.placements.push_back({id, begin, elements});
    layout.elements += rounded_up(elements, line);
    if (layout.runs.empty() || layout.runs.back().parameter_group != group_of.at(id)) {
      layout.runs.push_back({group_of.at(id), {begin, begin}});
    }
    layout.runs.back().range.end = layout.elements;
  }
  pad();
  if (encoding) layout.encoded_elements = layout.elements;
  return layout;
}

Range part_of(const Range& chunk, std::int64_t bucket_bytes, std::int64_t elements, DType dtype, int ranks) {
  const std::int64_t unit = unit_of(dtype, ranks);
  const auto border = [&](std::int64_t byte) {
    if (byte <= 0) return std::int64_t{0};
    if (byte >= bucket_bytes) return elements;
    const double share = static_cast<double>(byte) / static_cast<double>(bucket_bytes);
    return static_cast<std::int64_t>(share * static_cast<double>(elements / unit)) * unit;
  };
  return {border(chunk.begin), border(chunk.end)};
}

std::vector<TensorId> tensors_cut(const BucketLayout& layout, const Range& range, int ranks,
                                  const ShardShares* shares) {
  std::vector<TensorId> cut;
  for (const TensorPlacement& tensor : layout.placements) {
    for (int rank = 1; rank < ranks; ++rank) {
      const std::int64_t border =
          range.begin + shard_of(range.size(), layout.dtype, ranks, rank, shares).begin;
      if (border <= tensor.offset || border >= tensor.offset + tensor.elements) continue;
      cut.push_back(tensor.tensor);
      break;
    }
  }
  return cut;
}

std::vector<Run> runs_within(const BucketLayout& layout, const Range& range) {
  std::vector<Run> parts;
  for (const Run& run : layout.runs) {
    const Range part = intersection(run.range, range);
    if (!part.empty()) parts.push_back({run.parameter_group, part});
  }
  return parts;
}

}  // namespace dear::buckets
