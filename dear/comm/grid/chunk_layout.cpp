#include "dear/comm/grid/chunk_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "dear/base/os/cache_line.h"

namespace dear::grid {

std::vector<std::int64_t> piece_borders(const std::vector<std::int64_t>& chunk_bytes, std::int64_t stride,
                                        DType dtype) {
  const std::int64_t line = os::kCacheLineBytes / size_of(dtype);
  const auto lines = static_cast<double>(stride / line);
  const auto all = static_cast<double>(
      std::max<std::int64_t>(1, std::accumulate(chunk_bytes.begin(), chunk_bytes.end(), std::int64_t{0})));
  std::vector<std::int64_t> borders{0};
  double before = 0;
  for (const std::int64_t bytes : chunk_bytes) {
    before += static_cast<double>(bytes);
    borders.push_back(static_cast<std::int64_t>(std::llround(lines * (before / all))) * line);
  }
  borders.back() = stride;
  return borders;
}

Places::Places(const algorithm::Grid& grid, const std::vector<int>& order, int rank) {
  const int ranks = grid.ranks();
  for (int one = 0; one < ranks; ++one) {
    int place = 0;
    for (const int dimension : order) {
      place = place * grid.sizes[static_cast<std::size_t>(dimension)] + grid.coordinate(one, dimension);
    }
    of_rank_.push_back(place);
  }
  Range held{.begin = 0, .end = ranks};
  held_.push_back(held);
  for (const int dimension : order) {
    const std::int64_t share = held.size() / grid.sizes[static_cast<std::size_t>(dimension)];
    held.begin += share * grid.coordinate(rank, dimension);
    held.end = held.begin + share;
    held_.push_back(held);
  }
}

}  // namespace dear::grid
