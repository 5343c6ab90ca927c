#pragma once

#include <cstdint>

#include "dear/platform/algorithm/program.h"
#include "dear/platform/cluster/network.h"

namespace dear::cost {

// How long a program takes on a flat network, all ranks beginning at once, played message by message: a
// message of m bytes takes alpha + m beta and occupies the sender's link out and the receiver's link in; a
// rank begins its next round when all that it sends and receives in this one is through. Blocks have bytes /
// blocks each, also where that is no whole number. Messages that meet at one rank go in the order of their
// senders' numbers. ConfigError for negative bytes.
double program_seconds(const algorithm::Program& program, const Link& link, std::int64_t bytes);

}  // namespace dear::cost
