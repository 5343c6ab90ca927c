#pragma once

#include <cstdint>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/range.h"
#include "dear/platform/algorithm/chunk_plan.h"

// Where the elements of a vector lie while they travel through a grid in chunks.
namespace dear::grid {

// The elements of every shard at which chunk c begins, for all chunks, and at the end the `stride` elements
// that a shard has: shares of `chunk_bytes`, at multiples of 64 bytes. `stride` is one, too. Chunks may be
// empty.
std::vector<std::int64_t> piece_borders(const std::vector<std::int64_t>& chunk_bytes, std::int64_t stride,
                                        DType dtype);

// [Note: places] A chunk is packed as one piece for each rank, ordered by the coordinate in the first
// dimension of its order, then by that in the second, and so on. So what a rank holds after each dimension of
// a reduce-scatter lies side by side, and is the vector that the next dimension reduces: nothing is moved
// between phases, and an all-gather goes the same way back.
class Places {
 public:
  // `order`: all dimensions of more than one member.
  Places(const algorithm::Grid& grid, const std::vector<int>& order, int rank);

  // The place of the piece for a rank.
  [[nodiscard]] int of(int rank) const { return of_rank_[static_cast<std::size_t>(rank)]; }
  // The places that the calling rank holds after `reduced` dimensions of a reduce-scatter.
  [[nodiscard]] Range held(int reduced) const { return held_[static_cast<std::size_t>(reduced)]; }

 private:
  std::vector<int> of_rank_;
  std::vector<Range> held_;
};

}  // namespace dear::grid
