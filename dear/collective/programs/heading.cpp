#include "dear/collective/programs/heading.h"

#include <string>

#include <fmt/format.h>

#include "dear/base/error.h"

namespace dear::collective {
namespace {

constexpr std::uint8_t kAllocation = 255;  // beside the values of Operation

std::string describe(const Heading& one) {
  if (one.operation == kAllocation) {
    return fmt::format("an allocation of {} bytes", one.count);
  }
  if (one.operation > static_cast<std::uint8_t>(Operation::all_to_all) ||
      one.dtype > static_cast<std::uint8_t>(DType::u8) ||
      one.reduction > static_cast<std::uint8_t>(Reduction::min)) {
    return "something unknown";
  }
  Request request{.operation = static_cast<Operation>(one.operation),
                  .reduction = static_cast<Reduction>(one.reduction),
                  .root = one.root,
                  .label = one.label};
  request.view.count = one.count;
  request.view.dtype = static_cast<DType>(one.dtype);
  return dear::describe(request);
}

}  // namespace

Heading heading_of(std::uint64_t sequence, const Request& request) {
  Heading heading;
  heading.sequence = sequence;
  heading.operation = static_cast<std::uint8_t>(request.operation);
  heading.label = request.label;
  if (request.operation == Operation::barrier) {
    return heading;
  }
  heading.count = request.view.count;
  heading.dtype = static_cast<std::uint8_t>(request.view.dtype);
  if (request.operation == Operation::reduce_scatter || request.operation == Operation::all_reduce) {
    heading.reduction = static_cast<std::uint8_t>(request.reduction);
  }
  if (request.operation == Operation::broadcast) {
    heading.root = request.root;
  }
  return heading;
}

Heading heading_of_allocation(std::uint64_t sequence, std::int64_t bytes) {
  Heading heading;
  heading.sequence = sequence;
  heading.operation = kAllocation;
  heading.count = bytes;
  return heading;
}

void throw_on_mismatch(const Heading& mine, int rank, const Heading& theirs, int peer) {
  if (mine == theirs) {
    return;
  }
  if (rank > peer) {
    throw_on_mismatch(theirs, peer, mine, rank);
  }
  constexpr auto kRemedy = "every rank must issue the same collectives in the same order";
  if (mine.sequence != theirs.sequence) {
    throw MismatchError(
        fmt::format("rank {} asks for {} as collective {}, rank {} for {} as collective {}: {}", peer,
                    describe(theirs), theirs.sequence, rank, describe(mine), mine.sequence, kRemedy));
  }
  throw MismatchError(fmt::format("collective {}: rank {} asks for {}, rank {} for {}: {}", mine.sequence,
                                  peer, describe(theirs), rank, describe(mine), kRemedy));
}

}  // namespace dear::collective
