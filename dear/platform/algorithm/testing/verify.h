#pragma once

#include "dear/platform/algorithm/program.h"

namespace dear::algorithm::testing {

// Plays a program with symbols instead of numbers: the value of a block is the set of ranks whose
// contributions are in it. ScheduleError, one sentence with round and rank, for the first of
// - a message that its other end does not expect, with as many blocks, in the same place of the order;
// - a message to oneself, a rank or block that does not exist;
// - a block sent that holds nothing yet;
// - a block that is sent and received into in one round, or received into twice (it might be read
// half-written);
// - a contribution added twice;
// - in an all-to-all-v, a chunk that goes anywhere but to its place, or comes from a rank whose counts came
// in no earlier round: its length is not known then;
// - at the end, a block that lacks a contribution, or holds another's.
// Up to kMostVerifiedRanks ranks.
inline constexpr int kMostVerifiedRanks = 1024;
void verify(const Program& program);

}  // namespace dear::algorithm::testing
