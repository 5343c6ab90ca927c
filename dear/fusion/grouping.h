#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "dear/base/dtype.h"
#include "dear/base/ids.h"
#include "dear/base/range.h"
#include "dear/base/units.h"
#include "dear/workload/workload.h"

namespace dear {

// Tensors that travel together in one flat buffer. All of one dtype.
struct Bucket {
  std::vector<TensorId> tensors;  // ascending
  std::int64_t bytes = 0;         // of the tensors, without padding
  DType dtype = DType::f32;
  // The most that one collective carries of it, by policies that cut buckets so that nothing urgent waits for
  // a large one; 0: all at once.
  std::int64_t chunk_bytes = 0;
};

// The bytes of a bucket that one of several collectives carries. What is scattered has shards of its own:
// rank p owns the p-th part of these bytes.
inline constexpr Range kWholeBucket{.begin = 0, .end = std::numeric_limits<std::int64_t>::max()};
inline constexpr std::int64_t kMostChunks = 1024;  // of a bucket
struct Chunk {
  BucketId bucket = 0;
  Range bytes = kWholeBucket;  // at most to the end of the bucket
};

// The partition of all tensors of a workload into buckets, in forward order of their first tensors.
class Grouping {
 public:
  // Puts buckets, and the tensors in each, in order and fills in bytes and dtypes from the workload.
  // ConfigError unless every tensor of the workload is in exactly one bucket, no bucket mixes dtypes and none
  // is cut into chunks of negative size, or into more than 1024.
  Grouping(const Workload& workload, std::vector<Bucket> buckets);

  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  [[nodiscard]] BucketId bucket_of(TensorId tensor) const { return bucket_of_.at(tensor); }
  [[nodiscard]] std::size_t size() const { return buckets_.size(); }

 private:
  std::vector<Bucket> buckets_;
  std::vector<BucketId> bucket_of_;
};

// By size: whole modules in forward order. A bucket is closed when it is not empty and adding the next
// module's tensors would reach the threshold. The unit is a layer's tensors that no earlier layer owns.
struct BySize {
  std::int64_t threshold_bytes = 25 * kMiB;
  // The threshold of the first bucket in forward order; the same when not set.
  std::optional<std::int64_t> first_bytes = std::nullopt;
};
struct PerLayer {};
struct AllInOne {};
// As someone has listed them, in any order, by the names of tensors.
struct ByName {
  std::vector<std::vector<std::string>> buckets;
  std::vector<std::int64_t> chunk_bytes{};  // Bucket::chunk_bytes, in the same order; or nothing
  std::string source = "by name";           // stands for the list in messages: a file
};

// Where dtypes are mixed, each dtype is grouped by itself. ConfigError for a workload that validate()
// refuses, for a threshold below one byte, and for a list of names ("FILE: buckets[2][0]: ...") that is no
// grouping of the workload or where two tensors have one name.
Grouping group(const Workload& workload, const BySize& rule);
Grouping group(const Workload& workload, PerLayer rule);
Grouping group(const Workload& workload, AllInOne rule);
Grouping group(const Workload& workload, const ByName& rule);

// The names that give this grouping again. ConfigError where two tensors have one name.
ByName names_in(const Workload& workload, const Grouping& grouping);

// Tensor by tensor in the order of backward, from the last to the first: `closes(bucket, index, next)` says
// whether `bucket`, which is not empty and the one of number `index` of its dtype, ends before tensor `next`.
// In `bucket` the tensor put in last stands last. ConfigError for a workload that validate() refuses.
using Closes = std::function<bool(const Bucket& bucket, std::size_t index, TensorId next)>;
Grouping group_backward(const Workload& workload, const Closes& closes);

// By tensor: the layer that uses it first, whose backward completes its gradient.
std::vector<LayerId> owner_of(const Workload& workload);

// What a user writes for it: "25MiB", "first=1MiB,25MiB" (a first bucket of its own size), "layer", "all"; or
// a list of names, whose text is its source.
class Fusion {
 public:
  Fusion() = default;  // 25MiB
  explicit Fusion(ByName buckets) : text_(buckets.source), rule_(std::move(buckets)) {}
  static Fusion parse(std::string_view text);  // ConfigError with the forms there are
  [[nodiscard]] Grouping operator()(const Workload& workload) const;
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_ = "25MiB";
  std::variant<BySize, PerLayer, AllInOne, ByName> rule_;
};

}  // namespace dear
