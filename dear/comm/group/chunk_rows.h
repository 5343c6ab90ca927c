#pragma once

#include <cstdint>
#include <span>

#include "dear/base/vocabulary/dtype.h"

namespace dear {

// The bytes of rows that one rank sent to others and got from them.
struct MovedBytes {
  std::int64_t sent = 0;
  std::int64_t received = 0;
};

// ChunkRows is what a request for an all-to-all-v has beside its view and its output. Both are
// [rank][chunk][room][width]: for each rank `chunks` chunks, each with room for as many rows of `width`
// elements as the count of the view gives. The first sent[q * chunks + c] rows of chunk c for rank q travel,
// and nothing else does: q finds them at the beginning of its chunk c from this rank, and the rest of its
// output is as it was. The memory is the caller's; it stays until the collective is done, and `sent` does not
// change.
struct ChunkRows {
  int chunks = 1;
  int width = 1;
  const std::int64_t* sent = nullptr;  // [rank][chunk], each from 0 to the room
  std::int64_t* received = nullptr;    // [rank][chunk]: what the peers' counts for this rank were
  MovedBytes* moved = nullptr;         // where the traffic is told; nowhere if null
};

namespace comm {

// The chunks of an all-to-all-v of so many ranks as bytes: where chunk c for, or from, a rank begins in its
// view or output, and how many bytes its rows have.
struct ChunkPlaces {
  int ranks = 1;
  int chunks = 1;
  std::int64_t room = 0;       // rows
  std::int64_t row_bytes = 1;  // of a row

  [[nodiscard]] std::int64_t counts() const { return std::int64_t{ranks} * chunks; }
  [[nodiscard]] std::int64_t counts_bytes() const { return counts() * std::int64_t{sizeof(std::int64_t)}; }
  [[nodiscard]] std::int64_t begin_of(int rank, int chunk) const {
    return (std::int64_t{rank} * chunks + chunk) * room * row_bytes;
  }
  // The counts of the chunks of one rank, from those of all.
  [[nodiscard]] std::span<const std::int64_t> counts_of(const std::int64_t* all, int rank) const {
    return {all + std::int64_t{rank} * chunks, static_cast<std::size_t>(chunks)};
  }
  // The bytes of all rows that `all` counts for or from ranks other than `rank`.
  [[nodiscard]] std::int64_t bytes_of_others(const std::int64_t* all, int rank) const;
  [[nodiscard]] MovedBytes moved(const ChunkRows& rows, int rank) const {
    return {.sent = bytes_of_others(rows.sent, rank), .received = bytes_of_others(rows.received, rank)};
  }
};

// TransportError that names both ranks unless each of these counts, for the chunks of rank `to`, is one of
// rows that a chunk has room for. A backend calls it with what it was told before it writes any row.
void check_counts(const ChunkPlaces& places, std::span<const std::int64_t> counts, int from, int to);

}  // namespace comm
}  // namespace dear
