#pragma once

#include <vector>

#include "dear/fusion/grouping.h"
#include "dear/workload/workload.h"

namespace dear {

// When gradients are there, in seconds after the backward pass began. For the policies' own use.
std::vector<double> backward_ends(const Workload& workload);  // by layer
// By bucket: when the last of its gradients is there, those of the layer that uses it first.
std::vector<double> ready_seconds(const Workload& workload, const Grouping& grouping);

}  // namespace dear
