#pragma once

#include <memory>

#include "dear/cli/bench/engine.h"
#include "dear/collective/group.h"

namespace dear::cli::bench {

// A group of DeAR's, whatever its backend, as a program uses it: each operation is waited for, or, as
// training does, `ahead` of them are issued before the first is waited for.
std::unique_ptr<Engine> make_group_engine(const Group& group, int ahead = 1);

}  // namespace dear::cli::bench
