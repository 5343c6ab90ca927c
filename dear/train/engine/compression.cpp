// Gradients that travel compressed: what the codec lane does, and what a compression remembers.

#include <cmath>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/engine/engine.h"

namespace dear::train {

// A matrix has its first dimension as rows; a vector counts as one row.
std::vector<std::int64_t> Engine::rows_of_tensors(const std::vector<std::size_t>& order) const {
  std::vector<std::int64_t> rows;
  for (const std::size_t i : order) {
    const torch::Tensor& tensor = parameters_[i].tensor;
    rows.push_back(tensor.dim() < 2 ? 1 : tensor.size(0));
  }
  return rows;
}

std::unique_ptr<streams::FlatHostCopy> Engine::copy_to_host(const torch::Tensor& vector, View& view) {
  view.buffer = group_.allocate(view.count * size_of(view.dtype));
  return std::make_unique<streams::FlatHostCopy>(vector, view, *streams_);
}

std::shared_ptr<buckets::EncodedBucket> Engine::make_encoded(const BucketStorage& bucket,
                                                             const std::vector<std::int64_t>& rows) {
  const buckets::BucketLayout& layout = bucket.layout();
  HostCopies& copies = copies_.emplace_back();
  if (!compression_ || layout.encoded_elements == 0) return nullptr;
  std::vector<buckets::EncodedTensor> tensors;
  for (const buckets::TensorPlacement& placement : layout.placements)
    if (placement.offset < layout.encoded_elements)
      tensors.push_back({.range = {placement.offset, placement.offset + placement.elements},
                         .key = placement.tensor,
                         .rows = rows[placement.tensor]});
  buckets::BucketWire::Flat flat = bucket.flat();
  if (streams_) {
    copies.gradients = copy_to_host(bucket.gradients(), flat.gradients);
    if (compression_->weight_decay > 0)
      copies.parameters = copy_to_host(bucket.parameters(), flat.parameters);
  }
  return std::make_shared<buckets::EncodedBucket>(
      *compression_, std::move(tensors),
      buckets::EncodedBucket::Flat{flat.parameters, flat.gradients, layout.encoded_elements}, group_);
}

void Engine::code(const Work& work) {
  const auto* encode = std::get_if<Encode>(&work);
  const BucketId bucket = encode != nullptr ? encode->bucket : std::get<Decode>(work).bucket;
  try {
    const HostCopies& copies = copies_[bucket];
    if (encode == nullptr) {
      encoded_[bucket]->decode(!drop_updates_);
      if (copies.gradients) copies.gradients->give();
      return;
    }
    if (encode->round == 0)
      for (const auto* copy : {&copies.gradients, &copies.parameters})
        if (*copy) (*copy)->take();
    encoded_[bucket]->encode(encode->round);
  } catch (const std::exception& error) {
    group_.abort(fmt::format("rank {} failed to {}: {}", group_.rank(), name_of(work), error.what()));
    throw;
  }
}

Engine::CompressionMemory Engine::compression_memory() const {
  CompressionMemory memory(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto [bucket, index] = locations_[i];
    if (encoded_[bucket] && place_of(i).offset < buckets_[bucket].layout().encoded_elements)
      memory[i] = encoded_[bucket]->state(index);
  }
  return memory;
}

void Engine::set_compression_memory(const CompressionMemory& memory) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!memory.at(i)) continue;
    const auto [bucket, index] = locations_[i];
    if (!encoded_[bucket] || place_of(i).offset >= buckets_[bucket].layout().encoded_elements)
      throw ConfigError(fmt::format(
          "the state of a compression has something of '{}', which travels dense: load the state of the same "
          "compression and model",
          parameters_[i].name));
    encoded_[bucket]->set_state(index, *memory[i]);
  }
}

std::int64_t Engine::compression_step() const {
  for (const auto& encoded : encoded_)
    if (encoded) return encoded->step();
  return 0;
}

void Engine::set_compression_step(std::int64_t step) {
  for (const auto& encoded : encoded_)
    if (encoded) encoded->set_step(step);
}

buckets::CompressionCounts Engine::compression_counts() const {
  buckets::CompressionCounts counts, dense;
  for (const auto& encoded : encoded_)
    if (encoded) counts = add(counts, encoded->counts());
  for (BucketId bucket = 0; bucket < encoded_.size(); ++bucket)
    if (!encoded_[bucket])
      dense.bytes += buckets::dense_bytes(buckets_[bucket].layout().bytes(), group_.size());
  dense.bytes *= static_cast<double>(compression_step());
  dense.dense_bytes = dense.bytes;
  return add(counts, dense);
}

double Engine::residual_norm() const {
  double sum = 0;
  for (const auto& encoded : encoded_)
    if (encoded) sum += encoded->squared_residual();
  return std::sqrt(sum);
}

}  // namespace dear::train
