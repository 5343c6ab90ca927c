#pragma once

#include <cstdint>
#include <vector>

#include "dear/schedule/codec/compression.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/encoding.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/layers/workload.h"

namespace dear::sim {

// The memory of a rank during training, in bytes; without that of a framework's allocator and libraries.
struct Memory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t activations = 0;  // 0 where the workload does not know
  std::int64_t buffers = 0;
  std::int64_t compression = 0;  // residuals, momentum before the communication, payloads

  [[nodiscard]] std::int64_t total() const {
    return parameters + gradients + optimizer + activations + buffers + compression;
  }
};

// `optimizer_states` are values of fp32 that the optimiser keeps for each parameter: 1 for momentum, 2 for
// Adam; a parameter of half precision has a copy in fp32 besides. Of what `residence` says to be sharded a
// rank keeps one of so many shards; of sharded parameters and gradients, besides, the largest buckets that
// are whole at once: two of parameters (one in use, one that is being gathered), one of gradients.
// ConfigError for less than no states.
//
// Buckets that travel encoded are updated whole on every rank: see [Note: encoded buckets]. `encodings` are
// by bucket, none of them dense alone; empty without `compression`.
Memory memory_of(const Workload& workload, const Grouping& grouping, const Residence& residence, int shards,
                 int optimizer_states, const Compression* compression = nullptr,
                 const std::vector<Encoding>& encodings = {});

}  // namespace dear::sim
