#include "dear/tools/bench_collectives/uneven_rows.h"

#include <random>

namespace dear::bench_collectives {

std::vector<std::vector<std::int64_t>> uneven_rows(std::uint64_t seed, int ranks, std::int64_t room) {
  std::mt19937_64 generator(seed);
  std::vector<std::vector<std::int64_t>> rows;
  for (int from = 0; from < ranks; ++from) {
    rows.emplace_back();
    for (int to = 0; to < ranks; ++to)
      rows.back().push_back(static_cast<std::int64_t>(generator() % (static_cast<std::uint64_t>(room) + 1)));
  }
  return rows;
}

}  // namespace dear::bench_collectives
