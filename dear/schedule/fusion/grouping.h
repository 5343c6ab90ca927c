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

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/range.h"
#include "dear/base/vocabulary/units.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// Tensors of one dtype that travel together in one flat buffer.
struct Bucket {
  std::vector<TensorId> tensors;  // ascending
  std::int64_t bytes = 0;         // of the tensors, without padding
  DType dtype = DType::f32;
  // The most that one collective carries of the bucket; 0 for all of it. Some policies cut large buckets, so
  // that nothing urgent waits for them.
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
  // Sorts the buckets, and the tensors in each, into forward order, and fills in bytes and dtypes from the
  // workload. ConfigError unless every tensor of the workload is in exactly one bucket, no bucket mixes
  // dtypes and none is cut into chunks of negative size, or into more than 1024.
  Grouping(const Workload& workload, std::vector<Bucket> buckets);

  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  [[nodiscard]] BucketId bucket_of(TensorId tensor) const { return bucket_of_.at(tensor); }
  [[nodiscard]] std::size_t size() const { return buckets_.size(); }

 private:
  std::vector<Bucket> buckets_;
  std::vector<BucketId> bucket_of_;
};

// Grouping by size: whole layers in forward order, each with the tensors that no earlier layer owns. A bucket
// is closed when it is not empty and the next layer would bring it to the threshold.
struct BySize {
  std::int64_t threshold_bytes = 25 * kMiB;
  // The threshold of the first bucket in forward order, if it is another one.
  std::optional<std::int64_t> first_bytes = std::nullopt;
};
struct PerLayer {};  // a bucket for each layer
struct AllInOne {};  // one bucket
// Buckets that someone has listed, in any order, by the names of their tensors.
struct ByName {
  std::vector<std::vector<std::string>> buckets;
  std::vector<std::int64_t> chunk_bytes{};  // Bucket::chunk_bytes of each; or empty
  std::string source = "by name";           // what messages call the list, such as its file
};

// The grouping of a workload by a rule; each dtype is grouped by itself. ConfigError for a workload that
// validate() refuses, for a threshold below one byte, and for a list of names ("FILE: buckets[2][0]: ...")
// that is no grouping of the workload, or that does not tell two tensors of one name apart.
Grouping group(const Workload& workload, const BySize& rule);
Grouping group(const Workload& workload, PerLayer rule);
Grouping group(const Workload& workload, AllInOne rule);
Grouping group(const Workload& workload, const ByName& rule);

// The list of names that gives this grouping again. ConfigError if two tensors have one name.
ByName names_in(const Workload& workload, const Grouping& grouping);

// Groups tensor by tensor in the order of backward, from the last tensor to the first. `closes(bucket, index,
// next)` says whether `bucket`, which is not empty and has the number `index` among those of its dtype, ends
// before tensor `next`. The tensors of `bucket` stand in the order in which they were added. ConfigError for
// a workload that validate() refuses.
using Closes = std::function<bool(const Bucket& bucket, std::size_t index, TensorId next)>;
Grouping group_backward(const Workload& workload, const Closes& closes);

// For each tensor, the layer that uses it first. The backward of that layer completes the gradient of the
// tensor.
std::vector<LayerId> owner_of(const Workload& workload);

// A rule for groupings, as a user writes it: "25MiB", "first=1MiB,25MiB" (a first bucket of its own size),
// "layer", "all"; or a list of names, whose text is its source.
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
