#include "dear/comm/group/shard.h"

#include <algorithm>
#include <bit>

#include "dear/base/os/cache_line.h"

namespace dear {

Range shard_of(std::int64_t count, DType dtype, int ranks, int rank) {
  // Sizes of elements are powers of two, and divisions are slow beside a small message.
  const std::int64_t line =
      os::kCacheLineBytes >> std::countr_zero(static_cast<std::uint64_t>(size_of(dtype)));
  const std::int64_t share = count / ranks + (count % ranks != 0 ? 1 : 0);
  const std::int64_t block = (share + line - 1) & ~(line - 1);
  const auto edge = [&](std::int64_t blocks) { return std::min(count, block * blocks); };
  return {.begin = edge(rank), .end = edge(rank + 1)};
}

}  // namespace dear
