#include "dear/comm/shm/movement.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "dear/comm/group/reduce.h"
#include "dear/comm/shm/control.h"

namespace dear::backends {
namespace {

std::int64_t element_bytes(const CollectiveMemory& memory) { return size_of(memory.request.view.dtype); }

Stores stores_of(const CollectiveMemory& memory) {
  return stores_for(memory.request.view.count * element_bytes(memory) * memory.size);
}

void reduce_range(const CollectiveMemory& memory, Range range) {
  if (range.empty()) {
    return;
  }
  const std::int64_t offset = range.begin * element_bytes(memory);
  std::array<const std::byte*, Control::kMaxRanks> sources;
  for (int rank = 0; rank < memory.size; ++rank) {
    sources[static_cast<std::size_t>(rank)] = rank == memory.rank
                                                  ? memory.given(range.begin)
                                                  : memory.parts[static_cast<std::size_t>(rank)] + offset;
  }
  comm::reduce(memory.request.view.dtype, memory.request.reduction,
               std::span(sources).first(static_cast<std::size_t>(memory.size)), memory.reduced(range.begin),
               range.size());
}

void copy_range(const CollectiveMemory& memory, int from, Range range, Stores stores) {
  const std::int64_t element = element_bytes(memory);
  const std::byte* part = memory.parts[static_cast<std::size_t>(from)];
  if (part != memory.out && !range.empty()) {
    copy(memory.out + range.begin * element, part + range.begin * element, range.size() * element, stores);
  }
}

// Each rank begins with the rank behind it, so that not all read the same peer at once.
int after(const CollectiveMemory& memory, int step) { return (memory.rank + step) % memory.size; }

void copy_other_shards(const CollectiveMemory& memory) {
  for (int step = 1; step < memory.size; ++step) {
    const int peer = after(memory, step);
    copy_range(memory, peer, memory.shard(peer), Stores::cached);
  }
}

void copy_blocks(const CollectiveMemory& memory) {
  const Stores stores = stores_of(memory);
  const std::int64_t block = memory.request.view.count / memory.size * element_bytes(memory);
  for (int step = 0; step < memory.size && block > 0; ++step) {
    const int peer = after(memory, step);
    copy(memory.out + block * peer, memory.parts[static_cast<std::size_t>(peer)] + block * memory.rank, block,
         stores);
  }
}

// Goes from the end to the beginning, since what a reduce-scatter or an update wrote last is still in a
// cache; and chunk by chunk, so that each chunk is fetched once for all peers.
void give_shard(const CollectiveMemory& memory) {
  constexpr std::int64_t kChunkBytes = 64 * 1024;
  const std::int64_t element = element_bytes(memory);
  const Range own = memory.shard(memory.rank);
  const std::int64_t first = own.begin * element;
  const std::int64_t bytes = own.size() * element;
  const Stores stores = stores_of(memory);
  for (std::int64_t chunk = (bytes - 1) / kChunkBytes; chunk >= 0 && bytes > 0; --chunk) {
    const std::int64_t at = chunk * kChunkBytes;
    for (int step = 1; step < memory.size; ++step) {
      std::byte* const part = memory.parts[static_cast<std::size_t>(after(memory, step))];
      copy(part + first + at, memory.out + first + at, std::min(kChunkBytes, bytes - at), stores);
    }
  }
}

// Block by block, so that what is written into the peers' parts is in the cache from reading them.
void reduce_for_all(const CollectiveMemory& memory) {
  constexpr std::int64_t kBlockBytes = 8 * 1024;
  const std::int64_t element = element_bytes(memory);
  const std::int64_t block = kBlockBytes / element;
  const Range chunk = memory.shard(memory.rank);
  for (std::int64_t begin = chunk.begin; begin < chunk.end; begin += block) {
    const Range range{.begin = begin, .end = std::min(begin + block, chunk.end)};
    reduce_range(memory, range);
    for (int step = 1; step < memory.size; ++step) {
      std::byte* const part = memory.parts[static_cast<std::size_t>(after(memory, step))];
      std::memcpy(part + begin * element, memory.reduced(begin),
                  static_cast<std::size_t>(range.size() * element));
    }
  }
}

}  // namespace

const std::byte* CollectiveMemory::given(std::int64_t element) const {
  const std::int64_t bytes = size_of(request.view.dtype);
  return request.own.from != nullptr ? request.own.from + (element - shard(rank).begin) * bytes
                                     : parts[static_cast<std::size_t>(rank)] + element * bytes;
}

std::byte* CollectiveMemory::reduced(std::int64_t element) const {
  const std::int64_t bytes = size_of(request.view.dtype);
  return request.own.to != nullptr ? request.own.to + (element - shard(rank).begin) * bytes
                                   : out + element * bytes;
}

Range brought_bytes(const Request& request, int rank, int size) {
  const std::int64_t element = size_of(request.view.dtype);
  switch (request.collective) {
    case Collective::barrier:
      return {};
    case Collective::all_gather: {
      const Range shard = shard_of(request, size, rank);
      return {.begin = shard.begin * element, .end = shard.end * element};
    }
    case Collective::broadcast:
      return rank == request.root ? Range{.begin = 0, .end = request.view.count * element} : Range{};
    case Collective::reduce_scatter:
    case Collective::all_reduce:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
    case Collective::reduce:
      return {.begin = 0, .end = request.view.count * element};
  }
  return {};
}

void move(const CollectiveMemory& memory) {
  const Range whole{.begin = 0, .end = memory.request.view.count};
  switch (memory.request.collective) {
    case Collective::barrier:
      return;
    case Collective::reduce_scatter:
      return reduce_range(memory, memory.shard(memory.rank));
    case Collective::reduce:
      return memory.rank == memory.request.root ? reduce_range(memory, whole) : void();
    case Collective::all_gather:
      return copy_other_shards(memory);
    case Collective::all_reduce:
      return reduce_range(memory, whole);
    case Collective::broadcast:
      return memory.rank == memory.request.root
                 ? void()
                 : copy_range(memory, memory.request.root, whole, stores_of(memory));
    case Collective::all_to_all:
      return copy_blocks(memory);
    case Collective::all_to_all_v:  // see move_rows()
      return;
  }
}

void move_rows(const CollectiveMemory& memory, const comm::ChunkPlaces& places,
               const std::int64_t* received) {
  const Stores stores = stores_for(places.bytes_of_others(received, -1) * memory.size);
  for (int step = 0; step < memory.size; ++step) {
    const int peer = after(memory, step);
    const std::byte* const part = memory.parts[static_cast<std::size_t>(peer)];
    const std::span<const std::int64_t> counts = places.counts_of(received, peer);
    for (int chunk = 0; chunk < places.chunks; ++chunk) {
      const std::int64_t bytes = counts[static_cast<std::size_t>(chunk)] * places.row_bytes;
      if (bytes == 0) continue;
      copy(memory.out + places.begin_of(peer, chunk), part + places.begin_of(memory.rank, chunk), bytes,
           stores);
    }
  }
}

void move_in_views(const CollectiveMemory& memory) {
  switch (memory.request.collective) {
    case Collective::all_gather:
      return give_shard(memory);
    case Collective::all_reduce:
      return reduce_for_all(memory);
    case Collective::barrier:
    case Collective::reduce_scatter:
    case Collective::broadcast:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
    case Collective::reduce:
      return move(memory);
  }
}

}  // namespace dear::backends
