#include "dear/comm/group/shard.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

std::int64_t elements_of_line(DType dtype) {
  // Sizes of elements are powers of two, and divisions are slow beside a small message.
  return os::kCacheLineBytes >> std::countr_zero(static_cast<std::uint64_t>(size_of(dtype)));
}

}  // namespace

Range shard_of(std::int64_t count, DType dtype, int ranks, int rank) {
  const std::int64_t line = elements_of_line(dtype);
  const std::int64_t share = count / ranks + (count % ranks != 0 ? 1 : 0);
  const std::int64_t block = (share + line - 1) & ~(line - 1);
  const auto edge = [&](std::int64_t blocks) { return std::min(count, block * blocks); };
  return {.begin = edge(rank), .end = edge(rank + 1)};
}

Range shard_of(std::int64_t count, DType dtype, int ranks, int rank, const ShardShares* shares) {
  const std::int64_t line = elements_of_line(dtype);
  const std::int64_t lines = (count + line - 1) / line;
  if (shares == nullptr || lines < ranks) return shard_of(count, dtype, ranks, rank);
  const auto edge = [&](int of) {
    if (of == 0) return std::int64_t{0};
    const std::int64_t part = shares->ends[static_cast<std::size_t>(of - 1)];
    return std::min(count, (of + (lines - ranks) * part / shares->ends.back()) * line);
  };
  return {.begin = edge(rank), .end = edge(rank + 1)};
}

ShardShares shard_shares(const std::vector<double>& weights) {
  constexpr double kParts = 1 << 16;
  double all = 0;
  for (std::size_t rank = 0; rank < weights.size(); ++rank) {
    all += weights[rank];
    if (!(weights[rank] >= 0) || !std::isfinite(all))
      throw ConfigError(fmt::format(
          "shards with the weight {} for rank {}: give numbers that are not negative", weights[rank], rank));
  }
  if (!(all > 0)) throw ConfigError("shards with weights that are all 0: give at least one rank more");
  ShardShares shares;
  double sum = 0;
  for (const double weight : weights) {
    sum += weight;
    shares.ends.push_back(std::llround(kParts * (sum / all)));
  }
  return shares;
}

}  // namespace dear
