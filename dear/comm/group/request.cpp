#include "dear/comm/group/request.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/endings.h"

namespace dear {
namespace {

void validate_view(const Request& request, const View& view, const char* name) {
  const std::int64_t element = size_of(view.dtype);
  if (view.buffer.on_device())
    throw ConfigError(fmt::format("{}: the {} is memory of a device, which a group does not reach: copy it",
                                  describe(request), name));
  if (view.count < 0 || view.offset_bytes < 0) {
    throw ConfigError(fmt::format("{}: the {} has count {} and offset {}: neither may be negative",
                                  describe(request), name, view.count, view.offset_bytes));
  }
  // A size of elements is a power of two, and a division takes a tenth of what a small message does.
  if ((view.offset_bytes & (element - 1)) != 0) {
    throw ConfigError(fmt::format("{}: the {} starts at byte {}, which is no multiple of the element size {}",
                                  describe(request), name, view.offset_bytes, element));
  }
  const std::int64_t room = view.buffer.bytes();
  // The second comparison ensures that the third does not overflow.
  if (view.offset_bytes > room || view.count > room || view.count * element > room - view.offset_bytes) {
    throw ConfigError(fmt::format("{}: the {} ends outside its buffer of {} bytes ({} elements from byte {})",
                                  describe(request), name, room, view.count, view.offset_bytes));
  }
}

// The view has as many elements as the output, a multiple of the ranks.
void validate_rows(const Request& request, int ranks) {
  const ChunkRows& rows = request.rows;
  if (rows.chunks < 1 || rows.width < 1) {
    throw ConfigError(describe(request) + ": give at least one chunk, and rows of at least one element");
  }
  const std::int64_t of_rank = request.view.count / ranks;
  if (of_rank % rows.chunks != 0 || of_rank / rows.chunks % rows.width != 0) {
    throw ConfigError(
        fmt::format("{}: the {} elements for a rank are no whole number of rows for each chunk: make the "
                    "count a multiple "
                    "of ranks, chunks and width",
                    describe(request), of_rank));
  }
  if (rows.sent == nullptr || rows.received == nullptr) {
    throw ConfigError(describe(request) + ": give memory with the counts to send, and for those that come");
  }
  const comm::ChunkPlaces places = places_of(request, ranks);
  for (std::int64_t i = 0; i < places.counts(); ++i) {
    if (rows.sent[i] < 0 || rows.sent[i] > places.room) {
      throw ConfigError(fmt::format("{}: {} rows of chunk {} go to rank {}, and there is room for 0 to {}",
                                    describe(request), rows.sent[i], i % rows.chunks, i / rows.chunks,
                                    places.room));
    }
  }
}

}  // namespace

comm::ChunkPlaces places_of(const Request& request, int ranks) {
  const ChunkRows& rows = request.rows;
  return {.ranks = ranks,
          .chunks = rows.chunks,
          .room = request.view.count / ranks / rows.chunks / rows.width,
          .row_bytes = rows.width * size_of(request.view.dtype)};
}

std::string describe(const Request& request) {
  std::string text(name_of(request.collective));
  if (request.collective != Collective::barrier) {
    text += fmt::format(" of {} {}", request.view.count, name_of(request.view.dtype));
  }
  if (request.collective == Collective::all_to_all_v) {
    text += fmt::format(" in {} {} for each rank, rows of {}", request.rows.chunks,
                        request.rows.chunks == 1 ? "chunk" : "chunks", request.rows.width);
  }
  if (reduces(request.collective)) {
    text += ", " + name_of(request.reduction);
  }
  if (request.collective == Collective::broadcast || request.collective == Collective::reduce) {
    text +=
        fmt::format(" {} rank {}", request.collective == Collective::reduce ? "to" : "from", request.root);
  }
  if (request.collective == Collective::barrier && request.label == comm::kEndsWithinAStep) {
    return "the end of its DataParallel between a backward pass and step()";
  }
  if (request.label >= 0) {
    text += fmt::format(" (label {})", request.label);
  }
  return text;
}

void validate(const Request& request, int ranks) {
  if (request.collective == Collective::barrier) {
    return;
  }
  validate_view(request, request.view, "view");
  if ((request.view.buffer.shared() && request.collective != Collective::all_gather) ||
      request.output.buffer.shared()) {
    throw ConfigError(
        describe(request) +
        ": all ranks share this buffer, and only an all-gather takes it: use one of allocate() for the rest");
  }
  if (reduces(request.collective)) {
    const std::string_view obstacle = obstacle_to(request.view.dtype, request.reduction);
    if (!obstacle.empty()) throw ConfigError(fmt::format("{}: {}", describe(request), obstacle));
  }
  const bool has_shards =
      request.collective == Collective::all_reduce || request.collective == Collective::reduce_scatter;
  if ((request.own.from == nullptr) != (request.own.to == nullptr) ||
      (request.own.from != nullptr && !has_shards)) {
    throw ConfigError(describe(request) +
                      ": an own shard elsewhere has both a source and a destination, in an all-reduce or a "
                      "reduce-scatter");
  }
  if (request.shares != nullptr && ((!has_shards && request.collective != Collective::all_gather) ||
                                    std::ssize(request.shares->ends) != ranks))
    throw ConfigError(
        fmt::format("{}: unequal shards are of reduce-scatters, all-gathers and all-reduces, with "
                    "a share for each of the {} ranks",
                    describe(request), ranks));
  const bool has_root =
      request.collective == Collective::broadcast || request.collective == Collective::reduce;
  if (has_root && (request.root < 0 || request.root >= ranks)) {
    throw ConfigError(fmt::format("{}: there is no such root among {} ranks", describe(request), ranks));
  }
  if (!has_output(request.collective)) {
    return;
  }
  validate_view(request, request.output, "output");
  if (request.view.count % ranks != 0) {
    throw ConfigError(
        fmt::format("{}: the count must be a multiple of the {} ranks", describe(request), ranks));
  }
  if (request.output.count != request.view.count || request.output.dtype != request.view.dtype) {
    throw ConfigError(fmt::format("{}: the output has {} {}: it must match the view", describe(request),
                                  request.output.count, name_of(request.output.dtype)));
  }
  const std::int64_t bytes = request.view.count * size_of(request.view.dtype);
  const bool apart = request.view.offset_bytes + bytes <= request.output.offset_bytes ||
                     request.output.offset_bytes + bytes <= request.view.offset_bytes;
  if (bytes > 0 && request.view.buffer.region() == request.output.buffer.region() && !apart) {
    throw ConfigError(describe(request) + ": the output overlaps the view; give it a place of its own");
  }
  if (request.collective == Collective::all_to_all_v) validate_rows(request, ranks);
}

Timing begin_now(const Request& request) {
  const SteadyTime begin = request.timed ? SteadyClock::now() : request.asked;
  return {.begin = begin, .asked = request.asked == SteadyTime{} ? begin : request.asked};
}

SteadyTime end_now(const Request& request) { return request.timed ? SteadyClock::now() : request.asked; }

}  // namespace dear
