#include "dear/comm/group/heading.h"

#include <fmt/format.h>

#include "dear/base/recorder/record.h"

namespace dear::comm {

using recorder::kAllocation;
using recorder::kSharedAllocation;

Heading heading_of(std::uint64_t sequence, const Request& request) {
  Heading heading{.sequence = sequence,
                  .label = request.label,
                  .collective = static_cast<std::uint8_t>(request.collective)};
  if (request.collective == Collective::barrier) return heading;
  heading.count = request.view.count;
  heading.dtype = static_cast<std::uint8_t>(request.view.dtype);
  if (reduces(request.collective)) heading.reduction = static_cast<std::uint8_t>(request.reduction);
  if (request.collective == Collective::broadcast || request.collective == Collective::reduce)
    heading.root = request.root;
  if (request.collective == Collective::all_to_all_v) {
    heading.chunks = request.rows.chunks;
    heading.width = request.rows.width;
  }
  return heading;
}

Heading heading_of_allocation(std::uint64_t sequence, std::int64_t bytes) {
  return {.sequence = sequence, .count = bytes, .collective = kAllocation};
}

Heading heading_of_shared_allocation(std::uint64_t sequence, std::int64_t bytes) {
  return {.sequence = sequence, .count = bytes, .collective = kSharedAllocation};
}

std::string describe(const Heading& heading) {
  if (heading.collective == kAllocation) return fmt::format("an allocation of {} bytes", heading.count);
  if (heading.collective == kSharedAllocation)
    return fmt::format("an allocation of {} bytes for all to share", heading.count);
  if (heading.collective > static_cast<std::uint8_t>(Collective::all_to_all_v) ||
      heading.dtype > static_cast<std::uint8_t>(DType::u8) ||
      heading.reduction > static_cast<std::uint8_t>(Reduction::bitwise_or)) {
    return "something unknown";
  }
  Request request{.collective = static_cast<Collective>(heading.collective),
                  .reduction = static_cast<Reduction>(heading.reduction),
                  .root = heading.root,
                  .label = heading.label};
  request.rows.chunks = heading.chunks;
  request.rows.width = heading.width;
  request.view.count = heading.count;
  request.view.dtype = static_cast<DType>(heading.dtype);
  return dear::describe(request);
}

}  // namespace dear::comm
