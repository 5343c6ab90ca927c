#include "dear/platform/cost/ring.h"

#include <string>

#include "dear/base/vocabulary/error.h"

namespace dear::cost {
namespace {

void check(int ranks, std::int64_t bytes) {
  if (ranks < 1) {
    throw ConfigError("a collective among " + std::to_string(ranks) +
                      " ranks has no time: give at least one rank");
  }
  if (bytes < 0) {
    throw ConfigError("a collective of " + std::to_string(bytes) +
                      " bytes has no time: give a size of at least zero");
  }
}

// P-1 rounds, each of a message of m/P bytes.
double rounds_of_shards(const Link& link, int ranks, std::int64_t bytes) {
  check(ranks, bytes);
  const double rounds = ranks - 1;
  return rounds * link.alpha_seconds +
         rounds / ranks * static_cast<double>(bytes) * link.beta_seconds_per_byte;
}

}  // namespace

double ring_reduce_scatter_seconds(const Link& link, int ranks, std::int64_t bytes) {
  return rounds_of_shards(link, ranks, bytes);
}

double ring_all_gather_seconds(const Link& link, int ranks, std::int64_t bytes) {
  return rounds_of_shards(link, ranks, bytes);
}

double ring_all_reduce_seconds(const Link& link, int ranks, std::int64_t bytes) {
  return ring_reduce_scatter_seconds(link, ranks, bytes) + ring_all_gather_seconds(link, ranks, bytes);
}

double pipelined_broadcast_seconds(const Link& link, int ranks, std::int64_t bytes) {
  check(ranks, bytes);
  if (ranks == 1) return 0;
  return (ranks - 1) * link.alpha_seconds + static_cast<double>(bytes) * link.beta_seconds_per_byte;
}

double pairwise_all_to_all_seconds(const Link& link, int ranks, std::int64_t bytes) {
  return rounds_of_shards(link, ranks, bytes);
}

double ring_barrier_seconds(const Link& link, int ranks) { return rounds_of_shards(link, ranks, 0); }

}  // namespace dear::cost
