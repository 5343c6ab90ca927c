#include "dear/comm/group/chunk_rows.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::comm {

std::int64_t ChunkPlaces::bytes_of_others(const std::int64_t* all, int rank) const {
  std::int64_t rows = 0;
  for (int other = 0; other < ranks; ++other) {
    if (other == rank) continue;
    for (const std::int64_t count : counts_of(all, other)) rows += count;
  }
  return rows * row_bytes;
}

void check_counts(const ChunkPlaces& places, std::span<const std::int64_t> counts, int from, int to) {
  for (std::size_t chunk = 0; chunk < counts.size(); ++chunk) {
    if (counts[chunk] >= 0 && counts[chunk] <= places.room) continue;
    throw TransportError(
        fmt::format("rank {} says that it sends {} rows of chunk {} to rank {}, where a chunk has room for "
                    "{}: its counts "
                    "are corrupt, or changed while the all-to-all-v was under way",
                    from, counts[chunk], chunk, to, places.room));
  }
}

}  // namespace dear::comm
