#pragma once

#include <cstdint>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/range.h"

namespace dear {

// The elements of a vector of `count` that are the shard of `rank`: equal blocks of ceil(count / ranks)
// elements, rounded up to 64 bytes; the last ranks' may be shorter or empty. So shards of fewer elements than
// ranks exist, and whole vectors of a cache line stay together.
Range shard_of(std::int64_t count, DType dtype, int ranks, int rank);

// Shards of unequal sizes. Every rank owns a cache line of a vector; of the lines beyond these rank r owns
// the parts from ends[r - 1] to ends[r], of ends.back() parts. Alike on all ranks.
struct ShardShares {
  std::vector<std::int64_t> ends;  // by rank, ascending; the last is above 0 and at most 2^20
};

// Shares in proportion to weights, one for each rank. ConfigError for a weight that is negative or not
// finite, and where all are 0.
ShardShares shard_shares(const std::vector<double>& weights);

// As above with unequal shares; with null, and for a vector of fewer lines than ranks, the equal ones.
Range shard_of(std::int64_t count, DType dtype, int ranks, int rank, const ShardShares* shares);

}  // namespace dear
