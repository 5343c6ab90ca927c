#include "dear/sim/memory.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "dear/base/error.h"

namespace dear::sim {
namespace {

std::int64_t shard(std::int64_t bytes, int shards) { return (bytes + shards - 1) / shards; }

}  // namespace

Memory memory_of(const Workload& workload, const Grouping& grouping, const Residence& residence, int shards,
                 int optimizer_states) {
  if (optimizer_states < 0)
    throw ConfigError(
        fmt::format("an optimiser keeps no {} values for a parameter: give 0 or more", optimizer_states));
  std::vector<std::int64_t> largest(2);  // buckets
  for (const Bucket& bucket : grouping.buckets()) {
    largest.push_back(bucket.bytes);
    std::sort(largest.rbegin(), largest.rend());
    largest.pop_back();
  }
  std::int64_t states = 0;
  for (const Tensor& tensor : workload.tensors) {
    const bool has_copy = tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
    states += (optimizer_states + (has_copy ? 1 : 0)) * tensor.elements * size_of(DType::f32);
  }
  const std::int64_t whole = workload.bytes();
  Memory memory{
      .parameters = whole, .gradients = whole, .optimizer = states, .buffers = workload.buffer_bytes};
  if (residence.parameters_sharded)
    memory.parameters = std::min(whole, shard(whole, shards) + largest[0] + largest[1]);
  if (residence.gradients_sharded) memory.gradients = std::min(whole, shard(whole, shards) + largest[0]);
  if (residence.optimizer_sharded) memory.optimizer = shard(states, shards);
  for (const Layer& layer : workload.layers) memory.activations += layer.activation_bytes;
  return memory;
}

}  // namespace dear::sim
