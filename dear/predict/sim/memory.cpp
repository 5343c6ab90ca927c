#include "dear/predict/sim/memory.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/compressed.h"

namespace dear::sim {
namespace {

std::int64_t shard(std::int64_t bytes, int shards) { return (bytes + shards - 1) / shards; }

// Counts them as schedule/codec/feedback.h keeps them, and of every bucket its payloads.
std::int64_t bytes_of(const Compression& compression, const std::vector<Encoding>& encodings,
                      const Workload& workload, const Grouping& grouping) {
  const std::int64_t vectors = (compression.feedback ? 1 : 0) + (compression.momentum > 0 ? 2 : 0);
  std::int64_t bytes = 0;
  for (BucketId id = 0; id < encodings.size(); ++id) {
    if (encodings[id].dense()) continue;
    for (const EncodedPart& part : encodings[id].parts) bytes += part.bytes;
    const Bucket& bucket = grouping.buckets()[id];
    const std::vector<bool> encoded = encoded_tensors(compression, workload, bucket);
    for (std::size_t i = 0; i < encoded.size(); ++i)
      if (encoded[i]) bytes += vectors * workload.tensors[bucket.tensors[i]].elements * size_of(DType::f32);
  }
  return bytes;
}

}  // namespace

Memory memory_of(const Workload& workload, const Grouping& grouping, const Residence& residence, int shards,
                 int optimizer_states, const Compression* compression,
                 const std::vector<Encoding>& encodings) {
  if (optimizer_states < 0)
    throw ConfigError(
        fmt::format("an optimiser keeps no {} values for a parameter: give 0 or more", optimizer_states));
  std::vector<std::int64_t> largest(2);  // buckets
  for (const Bucket& bucket : grouping.buckets()) {
    largest.push_back(bucket.bytes);
    std::sort(largest.rbegin(), largest.rend());
    largest.pop_back();
  }
  std::vector<std::int64_t> states_of;  // bytes, by tensor
  for (const Tensor& tensor : workload.tensors) {
    const bool has_copy = tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
    states_of.push_back((optimizer_states + (has_copy ? 1 : 0)) * tensor.elements * size_of(DType::f32));
  }
  const std::int64_t states = std::accumulate(states_of.begin(), states_of.end(), std::int64_t{0});
  std::int64_t updated_whole = 0;  // of the states
  for (BucketId bucket = 0; bucket < encodings.size(); ++bucket)
    if (!encodings[bucket].dense())
      for (const TensorId tensor : grouping.buckets()[bucket].tensors) updated_whole += states_of[tensor];
  const std::int64_t whole = workload.bytes();
  Memory memory{
      .parameters = whole, .gradients = whole, .optimizer = states, .buffers = workload.buffer_bytes};
  if (residence.parameters_sharded)
    memory.parameters = std::min(whole, shard(whole, shards) + largest[0] + largest[1]);
  if (residence.gradients_sharded) memory.gradients = std::min(whole, shard(whole, shards) + largest[0]);
  if (residence.optimizer_sharded) memory.optimizer = updated_whole + shard(states - updated_whole, shards);
  for (const Layer& layer : workload.layers) memory.activations += layer.activation_bytes;
  if (compression != nullptr) memory.compression = bytes_of(*compression, encodings, workload, grouping);
  return memory;
}

}  // namespace dear::sim
