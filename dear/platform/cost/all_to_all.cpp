#include "dear/platform/cost/all_to_all.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/ring.h"

namespace dear::cost {
namespace {

// In each round everyone sends one message and receives one, so links are never waited for.
template <typename SecondsOf>
void play_exchange(std::vector<double>& ready, const SecondsOf& seconds_of) {
  const auto ranks = static_cast<int>(ready.size());
  const auto at = [](int rank) { return static_cast<std::size_t>(rank); };
  for (int shift = 1; shift < ranks; ++shift) {
    std::vector<double> through = ready;
    for (int from = 0; from < ranks; ++from) {
      const int to = (from + shift) % ranks;
      const double seconds = seconds_of(from, to);
      if (seconds == 0) continue;
      const double end = std::max(ready[at(from)], ready[at(to)]) + seconds;
      through[at(from)] = std::max(through[at(from)], end);
      through[at(to)] = std::max(through[at(to)], end);
    }
    ready = std::move(through);
  }
}

}  // namespace

double all_to_all_v_seconds(const Link& link, const algorithm::PairBytes& pairs) {
  algorithm::validate(pairs);
  std::vector<double> ready(static_cast<std::size_t>(pairs.ranks));
  const auto seconds = [&](std::int64_t bytes) {
    return bytes == 0 ? 0 : link.alpha_seconds + static_cast<double>(bytes) * link.beta_seconds_per_byte;
  };
  play_exchange(ready, [&](int, int) { return seconds(pairs.counts_bytes()); });
  play_exchange(ready, [&](int from, int to) { return seconds(pairs.at(from, to)); });
  return *std::max_element(ready.begin(), ready.end());
}

double part_of_all_to_all_seconds(const Link& link, int ranks, std::int64_t bytes, int parts) {
  if (parts < 1) {
    throw ConfigError(fmt::format("an all-to-all cannot be cut into {} parts: give at least one", parts));
  }
  const double alone = pairwise_all_to_all_seconds(link, ranks, 0);
  return alone + (pairwise_all_to_all_seconds(link, ranks, bytes) - alone) / parts;
}

}  // namespace dear::cost
