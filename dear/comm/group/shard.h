#pragma once

#include <cstdint>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/range.h"

namespace dear {

// The elements of a vector of `count` that are the shard of `rank`: equal blocks of ceil(count / ranks)
// elements, rounded up to 64 bytes; the last ranks' may be shorter or empty. So shards of fewer elements than
// ranks exist, and whole vectors of a cache line stay together.
Range shard_of(std::int64_t count, DType dtype, int ranks, int rank);

}  // namespace dear
