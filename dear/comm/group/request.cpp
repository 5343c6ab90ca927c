#include "dear/comm/group/request.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

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

}  // namespace

std::string describe(const Request& request) {
  std::string text(name_of(request.collective));
  if (request.collective != Collective::barrier) {
    text += fmt::format(" of {} {}", request.view.count, name_of(request.view.dtype));
  }
  if (reduces(request.collective)) {
    text += ", " + name_of(request.reduction);
  }
  if (request.collective == Collective::broadcast || request.collective == Collective::reduce) {
    text +=
        fmt::format(" {} rank {}", request.collective == Collective::reduce ? "to" : "from", request.root);
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
  const bool has_root =
      request.collective == Collective::broadcast || request.collective == Collective::reduce;
  if (has_root && (request.root < 0 || request.root >= ranks)) {
    throw ConfigError(fmt::format("{}: there is no such root among {} ranks", describe(request), ranks));
  }
  if (request.collective != Collective::all_to_all) {
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
}

Timing begin_now(const Request& request) {
  const SteadyTime begin = request.timed ? SteadyClock::now() : request.asked;
  return {.begin = begin, .asked = request.asked == SteadyTime{} ? begin : request.asked};
}

SteadyTime end_now(const Request& request) { return request.timed ? SteadyClock::now() : request.asked; }

}  // namespace dear
