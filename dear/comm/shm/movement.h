#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dear/comm/group/request.h"
#include "dear/comm/group/shard.h"
#include "dear/comm/shm/copy.h"

// How data moves in a collective on shared memory, apart from who waits for whom.
namespace dear::backends {

// One rank's memory in a collective on `size` ranks.
struct CollectiveMemory {
  const Request& request;
  int rank;
  int size;
  std::span<std::byte* const> parts;  // what each rank brought, where this rank can read it
  std::byte*
      out;  // this rank's part of the view, where there is an output its part of that; may be among `parts`

  [[nodiscard]] Range shard(int of) const { return shard_of(request, size, of); }
  // An element of this rank's own shard, or of any where that lies in the view: where its contribution is,
  // and where the reduction goes.
  [[nodiscard]] const std::byte* given(std::int64_t element) const;
  [[nodiscard]] std::byte* reduced(std::int64_t element) const;
};

// The bytes of its view that a rank has to bring to the others; empty for a rank that brings nothing.
Range brought_bytes(const Request& request, int rank, int size);

// Does this rank's part of the collective. It writes to `out` alone. Each rank does an all-reduce in full, so
// all-reduces and all-gathers should have few bytes here.
void move(const CollectiveMemory& memory);

// Does this rank's part of an all-to-all-v: copies as many rows as `received` counts from the parts to `out`.
void move_rows(const CollectiveMemory& memory, const comm::ChunkPlaces& places, const std::int64_t* received);

// As move(), where the parts are the views themselves: each rank writes what it has to give into all of them,
// since a store need not wait for what a load must. Each rank does a chunk of an all-reduce, which nobody
// else reads.
void move_in_views(const CollectiveMemory& memory);

}  // namespace dear::backends
