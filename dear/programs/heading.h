#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "dear/collective/request.h"

namespace dear::programs {

// What a rank says of its collective to each peer, ahead of the data. Fields without a meaning for the
// collective are 0.
struct Heading {
  std::uint64_t sequence = 0;
  std::int64_t count = 0;
  std::int64_t label = -1;
  std::int32_t root = 0;
  std::uint8_t collective = 0;
  std::uint8_t dtype = 0;
  std::uint8_t reduction = 0;
  std::uint8_t unused = 0;
  friend bool operator==(const Heading&, const Heading&) = default;
};

Heading heading_of(std::uint64_t sequence, const Request& request);
Heading heading_of_allocation(std::uint64_t sequence, std::int64_t bytes);

// A heading in 8 bytes, for messages whose length counts; none where they have no room for all it says. The
// highest bit, which no sequence has, tells it from the beginning of a whole one.
std::optional<std::uint64_t> packed(const Heading& heading);
// What a message begins with. `near`: a sequence that its sender's is less than 2^15 away from.
Heading read_heading(const std::byte* message, std::uint64_t near);

// MismatchError that names both, the same on both of them.
void throw_on_mismatch(const Heading& mine, int rank, const Heading& theirs, int peer);

}  // namespace dear::programs
