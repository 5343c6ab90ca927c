#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dear/comm/buckets/encoded_bucket.h"
#include "dear/comm/group/group.h"
#include "dear/schedule/codec/compression.h"
#include "dear/schedule/policies/step.h"
#include "dear/train/engine/parameters_in_buckets.h"
#include "dear/train/streams/host_copy.h"

namespace dear::train {

// The buckets whose gradients travel encoded: their codecs, and what a compression remembers from step to
// step. Steps of the codec lane come one at a time; all else while nothing is at work.
class CompressedBuckets {
 public:
  // `compression`: none where all gradients travel dense. `streams`: of the device on which buckets lie; null
  // elsewhere. Both, and `model`, outlive this.
  CompressedBuckets(Group group, const ParametersInBuckets& model, std::optional<Compression> compression,
                    streams::BucketStreams* streams)
      : group_(std::move(group)), model_(model), compression_(std::move(compression)), streams_(streams) {}
  // Makes the codec of the next bucket, null where it travels dense. `rows`, by tensor: of the matrix that it
  // is. All ranks together, in the same order.
  std::shared_ptr<buckets::EncodedBucket> add(const BucketStorage& bucket,
                                              const std::vector<std::int64_t>& rows);

  // On the thread that starts an encode: what the program has enqueued comes before.
  void follow(const Encode& work);
  // Encode and decode; with `drop` a decode forgets what was sent. Aborts the group when it throws.
  void run(const Work& work, bool drop);

  // The memory of a compression of each parameter on this rank; none where it travels dense. By parameter.
  using Memory = std::vector<std::optional<buckets::CompressionState>>;
  [[nodiscard]] Memory memory() const;
  // ConfigError for the state of another model or compression.
  void set_memory(const Memory& memory);
  [[nodiscard]] std::int64_t step() const;
  void set_step(std::int64_t step);
  [[nodiscard]] buckets::CompressionCounts counts() const;  // of all buckets
  [[nodiscard]] double residual_norm() const;
  [[nodiscard]] std::int64_t bytes() const;  // of memory, beside the buckets

 private:
  struct Bucket {
    std::shared_ptr<buckets::EncodedBucket> encoded{};  // null where it travels dense
    // On a device.
    std::unique_ptr<streams::FlatHostCopy> gradients{};
    std::unique_ptr<streams::FlatHostCopy> parameters{};  // where the compression reads them
  };
  // Makes the copy of a vector on the device in memory of the group, which `view` becomes.
  [[nodiscard]] std::unique_ptr<streams::FlatHostCopy> copy_to_host(const torch::Tensor& vector, View& view);
  [[nodiscard]] bool travels_encoded(std::size_t parameter) const;

  const Group group_;
  const ParametersInBuckets& model_;
  const std::optional<Compression> compression_;
  streams::BucketStreams* const streams_;
  std::vector<Bucket> buckets_;
};

}  // namespace dear::train
