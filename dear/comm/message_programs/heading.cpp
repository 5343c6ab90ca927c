#include "dear/comm/message_programs/heading.h"

#include <cstring>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/bit_field.h"

namespace dear::message_programs {
namespace {

// Fields of a packed heading.
constexpr comm::BitField kSequence = {0, 16};  // its last bits
constexpr comm::BitField kCount = {16, 22};
constexpr comm::BitField kLabel = {38, 17};  // plus 1, so that none is 0
constexpr comm::BitField kOperation = {55, 3};
constexpr comm::BitField kDType = {58, 3};
constexpr comm::BitField kReduction = {61, 2};
constexpr std::uint64_t kPacked = std::uint64_t{1} << 63;

}  // namespace

std::optional<std::uint64_t> packed(const Heading& heading) {
  const auto count = static_cast<std::uint64_t>(heading.count);
  const std::uint64_t label = static_cast<std::uint64_t>(heading.label) + 1;
  if (!kCount.fits(count) || !kLabel.fits(label) || !kOperation.fits(heading.collective) ||
      !kDType.fits(heading.dtype) || !kReduction.fits(heading.reduction) || heading.root != 0 ||
      heading.chunks != 0) {
    return std::nullopt;
  }
  return kPacked | kSequence.at_its_place(heading.sequence) | kCount.at_its_place(count) |
         kLabel.at_its_place(label) | kOperation.at_its_place(heading.collective) |
         kDType.at_its_place(heading.dtype) | kReduction.at_its_place(heading.reduction);
}

Heading read_heading(const std::byte* message, std::uint64_t near) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, message, sizeof bits);
  if ((bits & kPacked) == 0) {
    Heading whole;
    std::memcpy(&whole, message, sizeof whole);
    return whole;
  }
  const std::uint64_t last_bits = kSequence.in(bits);
  const auto ahead = static_cast<std::int16_t>(last_bits - near);  // or behind
  Heading heading;
  heading.sequence = near + static_cast<std::uint64_t>(std::int64_t{ahead});
  heading.count = static_cast<std::int64_t>(kCount.in(bits));
  heading.label = static_cast<std::int64_t>(kLabel.in(bits)) - 1;
  heading.collective = static_cast<std::uint8_t>(kOperation.in(bits));
  heading.dtype = static_cast<std::uint8_t>(kDType.in(bits));
  heading.reduction = static_cast<std::uint8_t>(kReduction.in(bits));
  return heading;
}

void throw_on_mismatch(const Heading& mine, int rank, const Heading& theirs, int peer) {
  if (mine == theirs) {
    return;
  }
  if (rank > peer) {
    throw_on_mismatch(theirs, peer, mine, rank);
  }
  if (mine.sequence != theirs.sequence) {
    throw MismatchError(fmt::format(
        "rank {} asks for {} as collective {}, rank {} for {} as collective {}: {}", peer, describe(theirs),
        theirs.sequence, rank, describe(mine), mine.sequence, comm::kSameOrder));
  }
  throw MismatchError(fmt::format("collective {}: rank {} asks for {}, rank {} for {}: {}", mine.sequence,
                                  peer, describe(theirs), rank, describe(mine), comm::kSameOrder));
}

}  // namespace dear::message_programs
