#include "dear/schedule/fusion/grouping.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

constexpr BucketId kNoBucket = std::numeric_limits<BucketId>::max();

// A layer's own tensors of one dtype, which are never split.
struct Unit {
  DType dtype = DType::f32;
  std::int64_t bytes = 0;
  std::vector<TensorId> tensors;
};

// In forward order of their first tensors. A tied tensor belongs to the first layer that lists it: as tensors
// are numbered by first use, those are the ones not below the number of tensors met before.
std::vector<Unit> units_of(const Workload& workload) {
  std::vector<Unit> units;
  TensorId met = 0;
  for (const Layer& layer : workload.layers) {
    const std::size_t first = units.size();
    const TensorId met_before = met;
    for (const TensorId t : layer.tensors) {
      if (t < met_before) continue;
      const Tensor& tensor = workload.tensors.at(t);
      auto unit = std::find_if(units.begin() + static_cast<std::ptrdiff_t>(first), units.end(),
                               [&](const Unit& candidate) { return candidate.dtype == tensor.dtype; });
      if (unit == units.end())
        unit = units.insert(units.end(), Unit{.dtype = tensor.dtype, .bytes = 0, .tensors = {}});
      unit->bytes += tensor.bytes();
      unit->tensors.push_back(t);
      met = std::max(met, t + 1);
    }
  }
  return units;
}

// `closes(bucket, index, unit)` says whether bucket number `index`, which is not empty, ends before the unit.
template <typename Closes>
Grouping group_units(const Workload& workload, Closes closes) {
  validate(workload);
  std::vector<Bucket> buckets;
  std::map<DType, std::size_t> open;
  for (const Unit& unit : units_of(workload)) {
    const auto found = open.find(unit.dtype);
    if (found == open.end() || closes(buckets[found->second], found->second, unit)) {
      open[unit.dtype] = buckets.size();
      buckets.push_back({.tensors = {}, .bytes = 0, .dtype = unit.dtype});
    }
    Bucket& bucket = buckets[open[unit.dtype]];
    bucket.bytes += unit.bytes;
    bucket.tensors.insert(bucket.tensors.end(), unit.tensors.begin(), unit.tensors.end());
  }
  return {workload, std::move(buckets)};
}

std::unordered_map<std::string_view, TensorId> tensors_by_name(const Workload& workload) {
  std::unordered_map<std::string_view, TensorId> found;
  for (TensorId t = 0; t < workload.tensors.size(); ++t) {
    const auto [other, is_new] = found.emplace(workload.tensors[t].name, t);
    if (!is_new) {
      throw ConfigError(
          fmt::format("tensors {} and {} of workload '{}' are both named '{}': give each a name of its own",
                      other->second, t, workload.name, other->first));
    }
  }
  return found;
}

}  // namespace

Grouping::Grouping(const Workload& workload, std::vector<Bucket> buckets)
    : buckets_(std::move(buckets)), bucket_of_(workload.tensors.size(), kNoBucket) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    if (bucket.tensors.empty()) throw ConfigError(fmt::format("bucket {} is empty: leave it out", b));
    if (bucket.chunk_bytes < 0)
      throw ConfigError(
          fmt::format("bucket {} cannot be cut into chunks of {} bytes: give a size above 0, or "
                      "0 to leave it whole",
                      b, bucket.chunk_bytes));
    std::sort(bucket.tensors.begin(), bucket.tensors.end());
    bucket.bytes = 0;
    for (const TensorId t : bucket.tensors) {
      if (t >= workload.tensors.size()) {
        throw ConfigError(
            fmt::format("bucket {} holds tensor {}, but workload '{}' has only {}: correct the index", b, t,
                        workload.name, workload.tensors.size()));
      }
      const Tensor& tensor = workload.tensors[t];
      const Tensor& first = workload.tensors[bucket.tensors.front()];
      if (tensor.dtype != first.dtype) {
        throw ConfigError(
            fmt::format("bucket {} mixes {} of tensor {} ('{}') with {} of tensor {} ('{}'): give each dtype "
                        "buckets of its own",
                        b, name_of(first.dtype), bucket.tensors.front(), first.name, name_of(tensor.dtype), t,
                        tensor.name));
      }
      if (bucket_of_[t] != kNoBucket) {
        throw ConfigError(fmt::format("tensor {} ('{}') is in a bucket twice: put it into one bucket once", t,
                                      tensor.name));
      }
      bucket_of_[t] = static_cast<BucketId>(b);
      bucket.bytes += tensor.bytes();
    }
    bucket.dtype = workload.tensors[bucket.tensors.front()].dtype;
    if (bucket.chunk_bytes > 0 && (bucket.bytes - 1) / bucket.chunk_bytes >= kMostChunks)
      throw ConfigError(fmt::format(
          "bucket {} of {} bytes cannot be cut into chunks of {} bytes: give chunks of at least {} bytes, so "
          "that there are {} at most",
          b, bucket.bytes, bucket.chunk_bytes, (bucket.bytes + kMostChunks - 1) / kMostChunks, kMostChunks));
  }
  const auto missing = std::find(bucket_of_.begin(), bucket_of_.end(), kNoBucket);
  if (missing != bucket_of_.end()) {
    const auto t = static_cast<std::size_t>(missing - bucket_of_.begin());
    throw ConfigError(
        fmt::format("tensor {} ('{}') is in no bucket: put it into one", t, workload.tensors[t].name));
  }
  std::sort(buckets_.begin(), buckets_.end(),
            [](const Bucket& a, const Bucket& b) { return a.tensors.front() < b.tensors.front(); });
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const TensorId t : buckets_[b].tensors) bucket_of_[t] = static_cast<BucketId>(b);
  }
}

Grouping group(const Workload& workload, const BySize& rule) {
  const std::int64_t first_bytes = rule.first_bytes.value_or(rule.threshold_bytes);
  if (rule.threshold_bytes < 1 || first_bytes < 1) {
    throw ConfigError(fmt::format("a bucket size of {} bytes cannot be used: give at least one byte",
                                  std::min(rule.threshold_bytes, first_bytes)));
  }
  return group_units(workload, [&](const Bucket& bucket, std::size_t index, const Unit& unit) {
    return bucket.bytes + unit.bytes >= (index == 0 ? first_bytes : rule.threshold_bytes);
  });
}

Grouping group(const Workload& workload, PerLayer) {
  return group_units(workload, [](const Bucket&, std::size_t, const Unit&) { return true; });
}

Grouping group(const Workload& workload, AllInOne) {
  return group_units(workload, [](const Bucket&, std::size_t, const Unit&) { return false; });
}

Grouping group(const Workload& workload, const ByName& rule) {
  validate(workload);
  const auto tensors = tensors_by_name(workload);
  std::vector<Bucket> buckets(rule.buckets.size());
  if (!rule.chunk_bytes.empty() && rule.chunk_bytes.size() != buckets.size())
    throw ConfigError(
        fmt::format("{}: chunk_bytes: {} sizes for {} buckets: give each bucket one, 0 for those "
                    "that stay whole",
                    rule.source, rule.chunk_bytes.size(), buckets.size()));
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (!rule.chunk_bytes.empty()) buckets[b].chunk_bytes = rule.chunk_bytes[b];
    for (std::size_t i = 0; i < rule.buckets[b].size(); ++i) {
      const std::string& name = rule.buckets[b][i];
      const auto tensor = tensors.find(name);
      if (tensor == tensors.end()) {
        throw ConfigError(fmt::format(
            "{}: buckets[{}][{}]: workload '{}' has no tensor '{}': use buckets that were made for "
            "this model",
            rule.source, b, i, workload.name, name));
      }
      buckets[b].tensors.push_back(tensor->second);
    }
  }
  try {
    return {workload, std::move(buckets)};
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: buckets: {}", rule.source, error.what()));
  }
}

ByName names_in(const Workload& workload, const Grouping& grouping) {
  tensors_by_name(workload);
  ByName names{.buckets = {}};
  for (const Bucket& bucket : grouping.buckets()) {
    std::vector<std::string>& of_bucket = names.buckets.emplace_back();
    for (const TensorId t : bucket.tensors) of_bucket.push_back(workload.tensors[t].name);
    names.chunk_bytes.push_back(bucket.chunk_bytes);
  }
  const auto is_whole = [](std::int64_t bytes) { return bytes == 0; };
  if (std::all_of(names.chunk_bytes.begin(), names.chunk_bytes.end(), is_whole)) names.chunk_bytes.clear();
  return names;
}

Grouping group_backward(const Workload& workload, const Closes& closes) {
  validate(workload);
  struct Open {
    Bucket bucket;
    std::size_t index = 0;
  };
  std::map<DType, Open> open;
  std::vector<Bucket> buckets;
  for (auto t = static_cast<TensorId>(workload.tensors.size()); t-- > 0;) {
    const Tensor& tensor = workload.tensors[t];
    auto& [bucket, index] = open[tensor.dtype];
    bucket.dtype = tensor.dtype;
    if (!bucket.tensors.empty() && closes(bucket, index, t)) {
      buckets.push_back(std::exchange(bucket, {.tensors = {}, .bytes = 0, .dtype = tensor.dtype}));
      ++index;
    }
    bucket.tensors.push_back(t);
    bucket.bytes += tensor.bytes();
  }
  for (auto& [dtype, last] : open) buckets.push_back(std::move(last.bucket));
  return {workload, std::move(buckets)};
}

std::vector<LayerId> owner_of(const Workload& workload) {
  std::vector<LayerId> owners(workload.tensors.size());
  for (auto layer = static_cast<LayerId>(workload.layers.size()); layer-- > 0;)
    for (const TensorId tensor : workload.layers[layer].tensors) owners[tensor] = layer;
  return owners;
}

Fusion Fusion::parse(std::string_view text) {
  static constexpr std::string_view kFirst = "first=";
  Fusion fusion;
  fusion.text_ = text;
  if (text == "layer") {
    fusion.rule_ = PerLayer{};
    return fusion;
  }
  if (text == "all") {
    fusion.rule_ = AllInOne{};
    return fusion;
  }
  BySize by_size;
  try {
    std::string_view size = text;
    if (text.starts_with(kFirst)) {
      const std::size_t comma = std::min(text.find(','), text.size());
      by_size.first_bytes = parse_bytes(text.substr(kFirst.size(), comma - kFirst.size()));
      size = text.substr(std::min(comma + 1, text.size()));
    }
    by_size.threshold_bytes = parse_bytes(size);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format(
        "fusion '{}': {}; use a bucket size such as 25MiB, first=1MiB,25MiB for a first bucket of "
        "its own size, layer for a bucket a layer, or all for one bucket",
        text, error.what()));
  }
  fusion.rule_ = by_size;
  return fusion;
}

Grouping Fusion::operator()(const Workload& workload) const {
  return std::visit([&](const auto& rule) { return group(workload, rule); }, rule_);
}

}  // namespace dear
