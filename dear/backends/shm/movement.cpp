#include "dear/backends/shm/movement.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "dear/backends/shm/control.h"
#include "dear/collective/reduce.h"

namespace dear::backends {
namespace {

std::int64_t element_bytes(const Side& side) { return size_of(side.request.view.dtype); }

Stores stores_of(const Side& side) {
  return stores_for(side.request.view.count * element_bytes(side) * side.size);
}

void reduce_range(const Side& side, Range range) {
  if (range.count() <= 0) {
    return;
  }
  const std::int64_t offset = range.begin * element_bytes(side);
  std::array<const std::byte*, Control::kMaxRanks> sources;
  for (int rank = 0; rank < side.size; ++rank) {
    sources[static_cast<std::size_t>(rank)] = side.parts[static_cast<std::size_t>(rank)] + offset;
  }
  collective::reduce(side.request.view.dtype, side.request.reduction,
                     std::span(sources).first(static_cast<std::size_t>(side.size)), side.out + offset,
                     range.count());
}

void copy_range(const Side& side, int from, Range range, Stores stores) {
  const std::int64_t element = element_bytes(side);
  const std::byte* part = side.parts[static_cast<std::size_t>(from)];
  if (part != side.out && range.count() > 0) {
    copy(side.out + range.begin * element, part + range.begin * element, range.count() * element, stores);
  }
}

// Each rank starts behind itself, so that not all read the same peer at once.
int after(const Side& side, int step) { return (side.rank + step) % side.size; }

void copy_other_shards(const Side& side) {
  for (int step = 1; step < side.size; ++step) {
    const int peer = after(side, step);
    copy_range(side, peer, side.shard(peer), Stores::cached);
  }
}

void copy_blocks(const Side& side) {
  const Stores stores = stores_of(side);
  const std::int64_t block = side.request.view.count / side.size * element_bytes(side);
  for (int step = 0; step < side.size && block > 0; ++step) {
    const int peer = after(side, step);
    copy(side.out + block * peer, side.parts[static_cast<std::size_t>(peer)] + block * side.rank, block,
         stores);
  }
}

// From the end, as what a reduce-scatter or an update wrote last is still in a cache; and chunk by chunk, so
// that each is fetched once for all peers.
void give_shard(const Side& side) {
  constexpr std::int64_t kChunkBytes = 64 * 1024;
  const std::int64_t element = element_bytes(side);
  const Range own = side.shard(side.rank);
  const std::int64_t first = own.begin * element;
  const std::int64_t bytes = own.count() * element;
  const Stores stores = stores_of(side);
  for (std::int64_t chunk = (bytes - 1) / kChunkBytes; chunk >= 0 && bytes > 0; --chunk) {
    const std::int64_t at = chunk * kChunkBytes;
    for (int step = 1; step < side.size; ++step) {
      std::byte* const part = side.parts[static_cast<std::size_t>(after(side, step))];
      copy(part + first + at, side.out + first + at, std::min(kChunkBytes, bytes - at), stores);
    }
  }
}

// Block by block, so that what is written into the peers' parts is in the cache from reading them.
void reduce_for_all(const Side& side) {
  constexpr std::int64_t kBlockBytes = 8 * 1024;
  const std::int64_t element = element_bytes(side);
  const std::int64_t block = kBlockBytes / element;
  const Range chunk = side.shard(side.rank);
  for (std::int64_t begin = chunk.begin; begin < chunk.end; begin += block) {
    const Range range{.begin = begin, .end = std::min(begin + block, chunk.end)};
    reduce_range(side, range);
    for (int step = 1; step < side.size; ++step) {
      std::byte* const part = side.parts[static_cast<std::size_t>(after(side, step))];
      std::memcpy(part + begin * element, side.out + begin * element,
                  static_cast<std::size_t>(range.count() * element));
    }
  }
}

}  // namespace

Range brought_bytes(const Request& request, int rank, int size) {
  const std::int64_t element = size_of(request.view.dtype);
  switch (request.operation) {
    case Operation::barrier:
      return {};
    case Operation::all_gather: {
      const Range shard = shard_of(request.view.count, request.view.dtype, size, rank);
      return {.begin = shard.begin * element, .end = shard.end * element};
    }
    case Operation::broadcast:
      return rank == request.root ? Range{.begin = 0, .end = request.view.count * element} : Range{};
    case Operation::reduce_scatter:
    case Operation::all_reduce:
    case Operation::all_to_all:
      return {.begin = 0, .end = request.view.count * element};
  }
  return {};
}

void move(const Side& side) {
  const Range whole{.begin = 0, .end = side.request.view.count};
  switch (side.request.operation) {
    case Operation::barrier:
      return;
    case Operation::reduce_scatter:
      return reduce_range(side, side.shard(side.rank));
    case Operation::all_gather:
      return copy_other_shards(side);
    case Operation::all_reduce:
      return reduce_range(side, whole);
    case Operation::broadcast:
      return side.rank == side.request.root ? void()
                                            : copy_range(side, side.request.root, whole, stores_of(side));
    case Operation::all_to_all:
      return copy_blocks(side);
  }
}

void move_in_views(const Side& side) {
  switch (side.request.operation) {
    case Operation::all_gather:
      return give_shard(side);
    case Operation::all_reduce:
      return reduce_for_all(side);
    case Operation::barrier:
    case Operation::reduce_scatter:
    case Operation::broadcast:
    case Operation::all_to_all:
      return move(side);
  }
}

}  // namespace dear::backends
