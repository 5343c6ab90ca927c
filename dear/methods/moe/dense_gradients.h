#pragma once

#include "dear/methods/moe/instructions.h"

// Collectives of dense gradients and parameters beside all-to-alls: these wait for tokens, so those yield.
namespace dear::methods::moe {

// Moves the collectives of dense tensors out of the way of all-to-alls. With no time for any of them, the
// network is played; what it leaves between all-to-alls is filled by best fit: each gap with the reductions
// that are ready and end in it, the one that leaves least first. Those that fit nowhere follow the last
// all-to-all.
//
// All-gathers move into the forward of the next iteration: what waits for one of the iteration before then
// waits for the one of its own, and that for the updates of the iteration before. Each goes into the gap that
// it leaves least of before its first reader begins, those with the earliest reader first; without one right
// before it.
InstructionGraph place_dense(const InstructionGraph& graph);

}  // namespace dear::methods::moe
