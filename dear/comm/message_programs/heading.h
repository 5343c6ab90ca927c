#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "dear/comm/group/heading.h"

namespace dear::message_programs {

using comm::Heading;

// A heading in 8 bytes, for messages whose length counts; none where they have no room for all it says. The
// highest bit, which no sequence has, tells it from the beginning of a whole one.
std::optional<std::uint64_t> packed(const Heading& heading);
// Reads the heading with which a message begins, packed or whole. `near` is a sequence that differs from the
// sender's by less than 2^15.
Heading read_heading(const std::byte* message, std::uint64_t near);

// Throws a MismatchError that names both ranks, the same on both of them, unless the headings are equal.
void throw_on_mismatch(const Heading& mine, int rank, const Heading& theirs, int peer);

}  // namespace dear::message_programs
