#include "dear/platform/algorithm/pair_bytes.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::algorithm {

std::int64_t PairBytes::total() const {
  std::int64_t sum = std::int64_t{ranks} * (ranks - 1) * counts_bytes();
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) sum += from != to ? at(from, to) : 0;
  }
  return sum;
}

void validate(const PairBytes& pairs) {
  const auto ranks = static_cast<std::size_t>(std::max(0, pairs.ranks));
  if (pairs.ranks < 1 || pairs.chunks < 0 || pairs.bytes.size() != ranks * ranks) {
    throw ConfigError(fmt::format(
        "an all-to-all-v cannot have {} ranks, {} chunks and bytes of {} pairs: give a number for each pair",
        pairs.ranks, pairs.chunks, pairs.bytes.size()));
  }
  const auto negative =
      std::find_if(pairs.bytes.begin(), pairs.bytes.end(), [](auto one) { return one < 0; });
  if (negative != pairs.bytes.end()) {
    throw ConfigError(fmt::format("a rank cannot send {} bytes: give a size of at least zero", *negative));
  }
}

}  // namespace dear::algorithm
