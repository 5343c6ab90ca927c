#pragma once

#include <vector>

#include "dear/schedule/fusion/grouping.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// When gradients are complete, in seconds after the backward pass began. For the policies' own use.
std::vector<double> backward_ends(const Workload& workload);  // by layer
// By bucket: when the gradients of the layer that uses it first are complete, which are the last.
std::vector<double> ready_seconds(const Workload& workload, const Grouping& grouping);

}  // namespace dear
