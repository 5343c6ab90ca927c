#include "dear/collective/shm/staged.h"

#include <cstring>

#include "dear/base/cache_line.h"
#include "dear/collective/shm/movement.h"

namespace dear::collective {
namespace {

// Of an all-reduce: every rank adds up all of it, which takes one barrier. Beyond, each adds up its shard and
// a second barrier lets the others have it.
constexpr std::int64_t kMostAddedByAll = 8 * 1024;

void put(std::byte* to, const std::byte* from, Range bytes) {
  if (bytes.count() > 0) {
    std::memcpy(to + bytes.begin, from + bytes.begin, static_cast<std::size_t>(bytes.count()));
  }
}

Range shard_bytes(const Request& request, int ranks, int rank) {
  const Range shard = shard_of(request.view.count, request.view.dtype, ranks, rank);
  const std::int64_t element = size_of(request.view.dtype);
  return {.begin = shard.begin * element, .end = shard.end * element};
}

}  // namespace

Request without_buffers(const Request& request) {
  Request bare{.operation = request.operation,
               .reduction = request.reduction,
               .root = request.root,
               .label = request.label,
               .asked = request.asked,
               .waiting = request.waiting,
               .timed = request.timed};
  bare.view.count = request.view.count;
  bare.view.dtype = request.view.dtype;
  return bare;
}

Staged::Staged(SharedMemory& host, std::int64_t room_bytes, Deadline deadline)
    : host_(host), room_bytes_(whole_cache_lines(room_bytes)) {
  stage_ = host_.allocate(static_cast<std::int64_t>(stages_.size()) * room_bytes_, deadline);
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    for (int rank = 0; rank < host_.size(); ++rank) {
      stages_[stage].push_back(host_.part_of(stage_, rank) + static_cast<std::int64_t>(stage) * room_bytes_);
    }
  }
}

Timing Staged::run(const Request& request, std::byte* data, std::byte* output, Deadline deadline) {
  const Request bare = without_buffers(request);
  const std::int64_t bytes = bare.view.count * size_of(bare.view.dtype);
  if (bare.operation == Operation::barrier || bytes == 0) {
    Timing timing = host_.meet_for(bare, deadline);
    timing.end = end_now(bare);
    return timing;
  }
  const int rank = host_.rank();
  const int size = host_.size();
  Parts& parts = stages_[next_];
  next_ = (next_ + 1) % stages_.size();
  std::byte* const own = parts[static_cast<std::size_t>(rank)];

  const bool in_shards = bare.operation == Operation::reduce_scatter ||
                         (bare.operation == Operation::all_reduce && bytes > kMostAddedByAll);
  if (in_shards) {  // nobody else reads this rank's own
    const Range shard = shard_bytes(bare, size, rank);
    put(own, data, {.begin = 0, .end = shard.begin});
    put(own, data, {.begin = shard.end, .end = bytes});
  } else {
    put(own, data, brought_bytes(bare, rank, size));
  }
  Timing timing = host_.meet_for(bare, deadline);

  // What this rank brought itself lies in its own memory, too.
  parts[static_cast<std::size_t>(rank)] = data;
  const auto carry = [&](const Request& what) {
    move({.request = what,
          .rank = rank,
          .size = size,
          .parts = parts,
          .out = what.operation == Operation::all_to_all ? output : data});
  };
  if (in_shards && bare.operation == Operation::all_reduce) {
    Request half = bare;
    half.operation = Operation::reduce_scatter;
    carry(half);
    put(own, data, shard_bytes(bare, size, rank));
    host_.meet_for({.waiting = bare.waiting, .timed = false}, deadline);
    half.operation = Operation::all_gather;
    carry(half);
  } else {
    carry(bare);
  }
  parts[static_cast<std::size_t>(rank)] = own;
  timing.end = end_now(bare);
  return timing;
}

}  // namespace dear::collective
