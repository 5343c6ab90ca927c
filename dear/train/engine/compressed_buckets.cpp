#include "dear/train/engine/compressed_buckets.h"

#include <cmath>
#include <exception>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::train {

std::unique_ptr<streams::FlatHostCopy> CompressedBuckets::copy_to_host(const torch::Tensor& vector,
                                                                       View& view) {
  view.buffer = group_.allocate(view.count * size_of(view.dtype));
  return std::make_unique<streams::FlatHostCopy>(vector, view, *streams_);
}

std::shared_ptr<buckets::EncodedBucket> CompressedBuckets::add(const BucketStorage& bucket,
                                                               const std::vector<std::int64_t>& rows) {
  const buckets::BucketLayout& layout = bucket.layout();
  Bucket& added = buckets_.emplace_back();
  if (!compression_ || layout.encoded_elements == 0) return nullptr;
  std::vector<buckets::EncodedTensor> tensors;
  for (const buckets::TensorPlacement& placement : layout.placements)
    if (placement.offset < layout.encoded_elements)
      tensors.push_back({.range = {placement.offset, placement.offset + placement.elements},
                         .key = placement.tensor,
                         .rows = rows[placement.tensor]});
  buckets::BucketWire::Flat flat = bucket.flat();
  if (streams_ != nullptr) {
    added.gradients = copy_to_host(bucket.gradients(), flat.gradients);
    if (compression_->weight_decay > 0) added.parameters = copy_to_host(bucket.parameters(), flat.parameters);
  }
  added.encoded = std::make_shared<buckets::EncodedBucket>(
      *compression_, std::move(tensors),
      buckets::EncodedBucket::Flat{flat.parameters, flat.gradients, layout.encoded_elements}, group_);
  return added.encoded;
}

void CompressedBuckets::follow(const Encode& work) {
  if (work.round > 0) return;
  for (const auto* copy : {&buckets_[work.bucket].gradients, &buckets_[work.bucket].parameters})
    if (*copy) (*copy)->follow();
}

void CompressedBuckets::run(const Work& work, bool drop) {
  const auto* encode = std::get_if<Encode>(&work);
  Bucket& bucket = buckets_[encode != nullptr ? encode->bucket : std::get<Decode>(work).bucket];
  try {
    if (encode == nullptr) {
      bucket.encoded->decode(!drop);
      if (bucket.gradients) bucket.gradients->give();
      return;
    }
    if (encode->round == 0)
      for (const auto* copy : {&bucket.gradients, &bucket.parameters})
        if (*copy) (*copy)->take();
    bucket.encoded->encode(encode->round);
  } catch (const std::exception& error) {
    group_.abort(fmt::format("rank {} failed to {}: {}", group_.rank(), name_of(work), error.what()));
    throw;
  }
}

bool CompressedBuckets::travels_encoded(std::size_t parameter) const {
  const BucketId bucket = model_.bucket_of(parameter);
  return buckets_[bucket].encoded &&
         model_.place_of(parameter).offset < model_.buckets()[bucket].layout().encoded_elements;
}

CompressedBuckets::Memory CompressedBuckets::memory() const {
  Memory memory(model_.parameters().size());
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const auto [bucket, index] = model_.location_of(i);
    if (travels_encoded(i)) memory[i] = buckets_[bucket].encoded->state(index);
  }
  return memory;
}

void CompressedBuckets::set_memory(const Memory& memory) {
  for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
    if (!memory.at(i)) continue;
    const auto [bucket, index] = model_.location_of(i);
    if (!travels_encoded(i))
      throw ConfigError(fmt::format(
          "the state of a compression has something of '{}', which travels dense: load the state of the same "
          "compression and model",
          model_.parameters()[i].name));
    buckets_[bucket].encoded->set_state(index, *memory[i]);
  }
}

std::int64_t CompressedBuckets::step() const {
  for (const Bucket& bucket : buckets_)
    if (bucket.encoded) return bucket.encoded->step();
  return 0;
}

void CompressedBuckets::set_step(std::int64_t step) {
  for (const Bucket& bucket : buckets_)
    if (bucket.encoded) bucket.encoded->set_step(step);
}

buckets::CompressionCounts CompressedBuckets::counts() const {
  buckets::CompressionCounts counts, dense;
  for (BucketId id = 0; id < buckets_.size(); ++id) {
    if (buckets_[id].encoded)
      counts = buckets::add(counts, buckets_[id].encoded->counts());
    else
      dense.bytes += buckets::dense_bytes(model_.buckets()[id].layout().bytes(), group_.size());
  }
  dense.bytes *= static_cast<double>(step());
  dense.dense_bytes = dense.bytes;
  return buckets::add(counts, dense);
}

double CompressedBuckets::residual_norm() const {
  double sum = 0;
  for (const Bucket& bucket : buckets_)
    if (bucket.encoded) sum += bucket.encoded->squared_residual();
  return std::sqrt(sum);
}

std::int64_t CompressedBuckets::bytes() const {
  std::int64_t bytes = 0;
  for (const Bucket& bucket : buckets_)
    if (bucket.encoded) bytes += bucket.encoded->bytes();
  return bytes;
}

}  // namespace dear::train
