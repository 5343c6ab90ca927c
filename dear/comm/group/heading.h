#pragma once

#include <cstdint>
#include <string>

#include "dear/comm/group/request.h"

namespace dear::comm {

// A Heading is what a rank tells its peers of a collective or an allocation, so that each can compare it with
// its own. Fields without a meaning for the collective are 0. It has no padding: it is sent as it lies.
struct Heading {
  std::uint64_t sequence = 0;  // the collective's number in the group, allocations counted too
  std::int64_t count = 0;      // of elements, or the bytes of an allocation
  std::int64_t label = -1;
  std::int32_t root = 0;
  std::uint8_t collective = 0;  // a value of Collective, or one beside them for allocations
  std::uint8_t dtype = 0;
  std::uint8_t reduction = 0;
  std::uint8_t unused = 0;
  std::int32_t chunks = 0;  // of an all-to-all-v
  std::int32_t width = 0;   // likewise
  friend bool operator==(const Heading&, const Heading&) = default;
};

Heading heading_of(std::uint64_t sequence, const Request& request);
Heading heading_of_allocation(std::uint64_t sequence, std::int64_t bytes);
Heading heading_of_shared_allocation(std::uint64_t sequence, std::int64_t bytes);

// "all-reduce of 1000 fp32, sum (label 3)", "an allocation of 64 bytes"; "something unknown" for bytes that
// no heading has.
std::string describe(const Heading& heading);

// The remedy at the end of a MismatchError.
inline constexpr const char* kSameOrder = "every rank must issue the same collectives in the same order";

}  // namespace dear::comm
