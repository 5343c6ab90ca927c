#pragma once

#include <memory>

#include "dear/collective/group.h"
#include "dear/measure/engine.h"

namespace dear::measure {

// A group of DeAR's, whatever its backend, as a program uses it: each operation is waited for, or, as
// training does, `ahead` of them are issued before the first is waited for.
std::unique_ptr<Engine> make_group_engine(const Group& group, int ahead = 1);

// Likewise, as training with one copy of the parameters uses a group that shares memory: gradients are
// reduce-scattered, each rank's update writes its shard of the parameters, and those are all-gathered where
// all ranks see them. The update is not measured: it writes as much without one copy.
std::unique_ptr<Engine> make_one_copy_engine(const Group& group, int ahead = 1);

}  // namespace dear::measure
