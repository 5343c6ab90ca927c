#pragma once

#include <cstdint>

#include "dear/base/dtype.h"

namespace dear {

// Elements [begin, end) of a vector.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t count() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The shard of `rank`: equal blocks of ceil(count / ranks) elements, rounded up to 64 bytes; the last ranks'
// may be shorter or empty. So shards of fewer elements than ranks exist, and whole vectors of a cache line
// stay together.
Range shard_of(std::int64_t count, DType dtype, int ranks, int rank);

}  // namespace dear
