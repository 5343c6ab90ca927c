#pragma once

#include <cstdint>
#include <vector>

namespace dear::bench_collectives {

// How many of at most `room` elements each rank sends to each in an all-to-all-v: [from][to], drawn alike by
// all ranks from the seed.
std::vector<std::vector<std::int64_t>> uneven_rows(std::uint64_t seed, int ranks, std::int64_t room);

}  // namespace dear::bench_collectives
