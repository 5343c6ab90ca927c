#include "dear/collective/shard.h"

#include <algorithm>

namespace dear {

Range shard_of(std::int64_t count, DType dtype, int ranks, int rank) {
  constexpr std::int64_t kCacheLine = 64;
  const std::int64_t line = kCacheLine / size_of(dtype);
  const std::int64_t share = count / ranks + (count % ranks != 0 ? 1 : 0);
  const std::int64_t block = (share + line - 1) / line * line;
  const auto edge = [&](std::int64_t blocks) { return std::min(count, block * blocks); };
  return {.begin = edge(rank), .end = edge(rank + 1)};
}

}  // namespace dear
