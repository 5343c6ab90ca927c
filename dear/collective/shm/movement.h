#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dear/collective/request.h"
#include "dear/collective/shard.h"
#include "dear/collective/shm/copy.h"

// How data moves in a collective on shared memory, apart from who waits for whom.
namespace dear::collective {

// One rank's side of a collective on `size` ranks.
struct Side {
  const Request& request;
  int rank;
  int size;
  std::span<const std::byte* const> parts;  // what each rank brought, where this rank can read it
  std::byte* out;  // this rank's part of the view, of an all-to-all that of the output; may be among `parts`

  [[nodiscard]] Range shard(int of) const {
    return shard_of(request.view.count, request.view.dtype, size, of);
  }
};

// What of a rank's view the others need: bytes of it. Nothing for a rank that brings nothing.
Range brought_bytes(const Request& request, int rank, int size);

// This rank's part of it, all at once: what was brought stays as it is meanwhile. An all-reduce is done in
// full by each rank, so this is for few bytes, or for collectives of one step.
void move(const Side& side);

// An all-reduce in two steps over elements [begin, end): each rank reduces its piece; when all have, each
// copies the pieces of the others.
void reduce_piece(const Side& side, Range whole);
void copy_pieces(const Side& side, Range whole);

}  // namespace dear::collective
