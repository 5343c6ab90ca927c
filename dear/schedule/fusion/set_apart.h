#pragma once

#include <vector>

#include "dear/schedule/fusion/grouping.h"

namespace dear {

// The grouping in which each tensor that is `apart`, by TensorId, has a bucket of its own, which is not cut
// into chunks; all other tensors stay together as they are.
Grouping set_apart(const Workload& workload, const Grouping& grouping, const std::vector<bool>& apart);

}  // namespace dear
