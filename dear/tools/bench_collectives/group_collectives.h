#pragma once

#include <memory>

#include "dear/comm/group/group.h"
#include "dear/tools/bench_collectives/collectives.h"

namespace dear::bench_collectives {

// The collectives of a group of DeAR. A batch issues `ahead` operations before it waits for the first: 1 as a
// program that waits for each, more as training.
std::unique_ptr<Collectives> make_group_collectives(const Group& group, int ahead = 1);

// The collectives of a group as training with one copy of the parameters uses a group that shares memory:
// gradients are reduce-scattered, each rank's update writes its shard of the parameters, and those are
// all-gathered where all ranks see them. The update is not measured: it writes as much without one copy.
std::unique_ptr<Collectives> make_one_copy_collectives(const Group& group, int ahead = 1);

}  // namespace dear::bench_collectives
