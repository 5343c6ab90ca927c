#pragma once

#include "dear/cluster/network.h"
#include "dear/collective/group.h"

namespace dear::wire {

// The network of a group as it is here and now, by a reduce-scatter and an all-gather of a few sizes. All
// ranks together; none fails where others go on, so times that no link explains are taken as bandwidth alone.
Link measure_link(Group& group);

}  // namespace dear::wire
