#pragma once

#include <cstdint>
#include <functional>

#include "dear/comm/group/group.h"

// All-to-all-vs that fail, on any group; each rank calls the same. See check_all_to_all_v() for those that do
// not.
namespace dear::comm::testing {

// Exchanges rows without end, by counts that every rank draws alike, until it fails. `hook` is called in each
// round while the exchange is under way.
void exchange_rows(const Group& group, const std::function<void(int round)>& hook);

// After its request was found valid, rank `liar` says that so many rows come to rank `to`, whose chunk has
// room for 4. Ends the group; nothing is written on `to`.
void lie_about_rows(const Group& group, int liar, int to, std::int64_t rows);

// Rank 1 exchanges as many elements as the others, cut up in another way.
enum class Differing : std::uint8_t { chunks, width };
void cut_up_differently(const Group& group, Differing differing);

}  // namespace dear::comm::testing
