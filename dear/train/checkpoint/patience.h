#pragma once

#include <functional>

#include "dear/comm/group/group.h"

namespace dear::checkpoint {

// Runs `act` on every rank, however long it takes: saving and loading take as long as the disk does, which a
// rank that waits cannot tell from a peer that is stuck. So ranks that are at work tell the others four times
// within the group's timeout, by a collective on a thread beside. Returns when `act` has returned on every
// rank. All ranks together; `act` issues no collective of this group. What it throws is thrown here, when the
// others are done. TimeoutError, on every rank, where one has been at work for kTimeoutsWithoutAByte timeouts
// in which its process has written nothing (os::bytes_written()): there the disk does not answer.
void patiently(const Group& group, const std::function<void()>& act);

inline constexpr int kTimeoutsWithoutAByte = 10;

}  // namespace dear::checkpoint
