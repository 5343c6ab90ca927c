#include "dear/comm/grid/travel.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/private_region.h"
#include "dear/comm/group/reduce.h"
#include "dear/comm/group/reduce_kernels.h"
#include "dear/comm/group/shard.h"

namespace dear::grid {
namespace {

using algorithm::ChunkPhase;

}  // namespace

Scratch::Scratch(const std::vector<std::unique_ptr<Backend>>& lines) {
  for (int dimension = 0; index_of(dimension) < lines.size(); ++dimension) {
    const bool own = lines[index_of(dimension)] && !lines[index_of(dimension)]->takes_any_buffer();
    of_dimension_.push_back(own ? static_cast<int>(memories_.size()) : -1);
    if (own) memories_.push_back({.dimension = dimension});
  }
  memories_.emplace_back();
}

void Scratch::reserve(const std::vector<std::unique_ptr<Backend>>& lines, std::int64_t bytes, int sides,
                      Deadline deadline) {
  for (Memory& memory : memories_) {
    // All dimensions have a memory of their own: no chunk is ever in the private one.
    const bool unused =
        memory.dimension < 0 &&
        std::none_of(
            lines.begin(), lines.end(), [](const auto& line) { return line && line->takes_any_buffer(); });
    for (int side = 0; side < sides && !unused; ++side) {
      Buffer& buffer = memory.sides[index_of(side)];
      if (buffer.bytes() >= bytes) continue;
      buffer = {};
      buffer = memory.dimension < 0 ? comm::allocate_private(bytes)
                                    : lines[index_of(memory.dimension)]->allocate(bytes, deadline);
    }
  }
}

Travel::Travel(const TravelOptions& options, const std::vector<std::unique_ptr<Backend>>& lines,
               Scratch& scratch, Deadline deadline)
    : plan_(options.plan),
      request_(options.request),
      lines_(lines),
      scratch_(scratch),
      rank_(options.rank),
      ranks_(options.plan.grid.ranks()),
      unsummed_(options.unsummed && reduces(options.request.collective)),
      modelled_(options.modelled),
      label_(options.label),
      direct_(options.direct),
      element_(size_of(request_.view.dtype)),
      stride_(shard_of(request_.view.count, request_.view.dtype, ranks_, 0).size()) {
  // The first shard is shorter than a cache line where it has all elements.
  const std::int64_t line = os::kCacheLineBytes / element_;
  stride_ = (stride_ + line - 1) / line * line;
  const std::vector<std::int64_t> borders = piece_borders(plan_.chunk_bytes, stride_, request_.view.dtype);
  for (int number = 0; number < plan_.chunks(); ++number) {
    chunks_.push_back({.begin = borders[index_of(number)],
                       .piece = borders[index_of(number) + 1] - borders[index_of(number)],
                       .places = options.places[index_of(number)],
                       .order = plan_.orders[index_of(number)]});
  }
  scratch.reserve(lines, ranks_ * stride_ * element_, unsummed_ ? 2 : 1, deadline);
}

void Travel::serve(ChunkPhase phase, SteadyTime ready, Deadline deadline) {
  Chunk& chunk = chunks_[index_of(phase.chunk)];
  if (chunk.piece == 0) return;
  const auto reduced = static_cast<int>(plan_.before(phase).size());
  Backend& line = *lines_[index_of(chunk.order[index_of(reduced)])];
  if (plan_.collective_of(phase) == Collective::all_gather)
    return gather(chunk, reduced, line, ready, deadline);
  const bool last = index_of(reduced) + 1 == chunk.order.size();
  if (unsummed_) {
    pass_on(chunk, reduced, line, ready, deadline);
    if (last) add_up(chunk);
  } else {
    reduce(chunk, reduced, line, ready, deadline);
  }
  if (!last) return;
  const Range own = piece_of(rank_, chunk);
  if (!unsummed_ && request_.reduction == Reduction::average) {
    const Range reduced_here =
        is_one_all_reduce(chunk, reduced) ? chunk.places.held(reduced) : chunk.places.held(reduced + 1);
    divide(packed(chunk, chunk.memory, reduced_here.begin), reduced_here.size() * chunk.piece);
  }
  if (request_.collective == Collective::reduce_scatter && !own.empty()) {
    std::memcpy(user(own.begin), packed(chunk, chunk.memory, chunk.places.of(rank_)), bytes_of(own.size()));
  }
}

void Travel::divide(std::byte* data, std::int64_t count) const {
  const void* const source = data;
  comm::find_kernel(request_.view.dtype, Reduction::sum)({.data = &source, .count = 1}, data, count, ranks_);
}

// All ranks came to the collective before it began, so what they contribute lies ready.
void Travel::add_up_directly(Chunk& chunk) {
  chunk.memory = scratch_.of(direct_->dimension);
  const Range held = chunk.places.held(1);
  const int members = plan_.grid.sizes[index_of(direct_->dimension)];
  std::vector<const std::byte*> sources(index_of(members));
  for (int rank = 0; rank < ranks_; ++rank) {
    const Range piece = piece_of(rank, chunk);
    if (piece.empty() || !held.contains(chunk.places.of(rank))) continue;
    for (int member = 0; member < members; ++member) {
      sources[index_of(member)] = direct_->part_of(request_.view.buffer, member) +
                                  request_.view.offset_bytes + piece.begin * element_;
    }
    const bool averages = request_.reduction == Reduction::average;
    comm::reduce(request_.view.dtype, averages ? Reduction::sum : request_.reduction, sources,
                 packed(chunk, chunk.memory, chunk.places.of(rank)), piece.size());
  }
}

// Places are the same on all members.
void Travel::take_directly(const Chunk& chunk) const {
  const std::byte* const mine = scratch_.side(chunk.memory, 0).data();
  for (int rank = 0; rank < ranks_; ++rank) {
    const Range piece = piece_of(rank, chunk);
    if (piece.empty() || (rank == rank_ && request_.collective != Collective::all_reduce)) continue;
    const int member = plan_.grid.coordinate(rank, direct_->dimension);
    const std::byte* const theirs = direct_->part_of(scratch_.side(chunk.memory, 0), member);
    std::memcpy(user(piece.begin), theirs + (packed(chunk, chunk.memory, chunk.places.of(rank)) - mine),
                bytes_of(piece.size()));
  }
}

// The line reduces what this rank holds, and leaves it what it holds next.
void Travel::reduce(Chunk& chunk, int reduced, Backend& line, SteadyTime ready, Deadline deadline) {
  if (is_direct(chunk, reduced)) return add_up_directly(chunk);
  const int memory = memory_for(chunk, chunk.order[index_of(reduced)], false);
  if (reduced == 0) {
    pack(chunk, memory);
  } else {
    move_to(chunk, memory, chunk.places.held(reduced));
  }
  chunk.memory = memory;
  const bool averages = request_.reduction == Reduction::average;
  run(line,
      {.collective = is_one_all_reduce(chunk, reduced) ? Collective::all_reduce : Collective::reduce_scatter,
       .view = view_of(chunk, memory, chunk.places.held(reduced)),
       .reduction = averages ? Reduction::sum : request_.reduction},
      ready, deadline);
}

// [Note: unsummed] After `reduced` dimensions a rank holds, of each rank that has its coordinates in all
// other dimensions, the contribution to all pieces whose owner has its coordinates in those dimensions:
// ordered by the contributor's coordinate in the last dimension first, then by the place of the piece. The
// next line sends blocks by the owner's coordinate in it.
void Travel::pass_on(Chunk& chunk, int reduced, Backend& line, SteadyTime ready, Deadline deadline) {
  const int memory = memory_for(chunk, chunk.order[index_of(reduced)], false);
  if (reduced == 0) {
    pack(chunk, memory);
  } else {
    const std::int64_t contributions = ranks_ / chunk.places.held(reduced).size();
    const std::int64_t block = chunk.places.held(reduced + 1).size();
    const std::int64_t members = chunk.places.held(reduced).size() / block;
    for (std::int64_t member = 0; member < members; ++member) {
      for (std::int64_t of = 0; of < contributions; ++of) {
        std::memcpy(packed(chunk, memory, (member * contributions + of) * block),
                    packed(chunk, chunk.memory, (of * members + member) * block, 1),
                    bytes_of(block * chunk.piece));
      }
    }
  }
  chunk.memory = memory;
  const Range all{.begin = 0, .end = ranks_};
  run(line,
      {.collective = Collective::all_to_all,
       .view = view_of(chunk, memory, all),
       .output = view_of(chunk, memory, all, 1)},
      ready, deadline);
}

void Travel::add_up(Chunk& chunk) {
  std::vector<const std::byte*> sources;
  for (int from = 0; from < ranks_; ++from) {
    int place = 0;
    for (auto dimension = chunk.order.rbegin(); dimension != chunk.order.rend(); ++dimension) {
      place = place * plan_.grid.sizes[index_of(*dimension)] + plan_.grid.coordinate(from, *dimension);
    }
    sources.push_back(packed(chunk, chunk.memory, place, 1));
  }
  const Range own = piece_of(rank_, chunk);
  if (own.empty()) return;
  comm::reduce(request_.view.dtype, request_.reduction, sources,
               packed(chunk, chunk.memory, chunk.places.of(rank_)), own.size());
}

void Travel::gather(Chunk& chunk, int reduced, Backend& line, SteadyTime ready, Deadline deadline) {
  if (is_one_all_reduce(chunk, reduced)) {
    if (reduced == 0) unpack(chunk, true);
    return;
  }
  const int memory = memory_for(chunk, chunk.order[index_of(reduced)], true);
  if (chunk.memory < 0) {
    const Range own = piece_of(rank_, chunk);
    if (!own.empty()) {
      std::memcpy(packed(chunk, memory, chunk.places.of(rank_)), user(own.begin), bytes_of(own.size()));
    }
  } else {
    move_to(chunk, memory, chunk.places.held(reduced + 1));
  }
  chunk.memory = memory;
  if (is_direct(chunk, reduced)) {
    run(line, {}, ready, deadline);
    return take_directly(chunk);
  }
  run(line,
      {.collective = Collective::all_gather, .view = view_of(chunk, memory, chunk.places.held(reduced))},
      ready, deadline);
  if (reduced == 0) unpack(chunk, request_.collective == Collective::all_reduce);
}

void Travel::run(Backend& line, Request request, SteadyTime ready, Deadline deadline) const {
  request.label = label_;
  request.asked = ready;
  request.waiting = request_.waiting;
  request.timed = modelled_;
  const Timing timing = line.run(request, deadline);
  if (modelled_) std::this_thread::sleep_until(timing.end);
}

int Travel::memory_for(const Chunk& chunk, int dimension, bool gathers) const {
  if (const int own = scratch_.of(dimension); own >= 0) return own;
  if (chunk.memory >= 0) return chunk.memory;
  const auto later = [&](auto begin, auto end) {
    const auto found = std::find_if(begin, end, [&](int other) { return scratch_.of(other) >= 0; });
    return found == end ? scratch_.any() : scratch_.of(*found);
  };
  return gathers ? later(chunk.order.rbegin(), chunk.order.rend())
                 : later(chunk.order.begin(), chunk.order.end());
}

Range Travel::piece_of(int rank, const Chunk& chunk) const {
  const Range shard = shard_of(request_.view.count, request_.view.dtype, ranks_, rank);
  return {.begin = std::min(shard.end, shard.begin + chunk.begin),
          .end = std::min(shard.end, shard.begin + chunk.begin + chunk.piece)};
}

std::byte* Travel::user(std::int64_t element) const {
  return request_.view.buffer.data() + request_.view.offset_bytes + element * element_;
}

std::byte* Travel::packed(const Chunk& chunk, int memory, std::int64_t place, int side) const {
  return scratch_.side(memory, side).data() + (ranks_ * chunk.begin + place * chunk.piece) * element_;
}

View Travel::view_of(const Chunk& chunk, int memory, Range places, int side) const {
  return {.buffer = scratch_.side(memory, side),
          .offset_bytes = (ranks_ * chunk.begin + places.begin * chunk.piece) * element_,
          .count = places.size() * chunk.piece,
          .dtype = request_.view.dtype};
}

void Travel::pack(const Chunk& chunk, int memory) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Range piece = piece_of(rank, chunk);
    if (piece.empty()) continue;
    std::memcpy(packed(chunk, memory, chunk.places.of(rank)), user(piece.begin), bytes_of(piece.size()));
  }
}

void Travel::unpack(const Chunk& chunk, bool own_too) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Range piece = piece_of(rank, chunk);
    if (piece.empty() || (rank == rank_ && !own_too)) continue;
    std::memcpy(user(piece.begin), packed(chunk, chunk.memory, chunk.places.of(rank)),
                bytes_of(piece.size()));
  }
}

void Travel::move_to(const Chunk& chunk, int memory, Range places) const {
  if (memory == chunk.memory) return;
  std::memcpy(packed(chunk, memory, places.begin), packed(chunk, chunk.memory, places.begin),
              bytes_of(places.size() * chunk.piece));
}

}  // namespace dear::grid
