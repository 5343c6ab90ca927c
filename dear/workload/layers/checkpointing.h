#pragma once

#include "dear/workload/layers/workload.h"

namespace dear {

// Returns the job with activation checkpointing (Chen et al. 2016, arXiv 1604.06174): layers form segments,
// of which the forward pass keeps what the last layer keeps, at least its output, and the backward pass
// computes the rest again, segment by segment. So a backward pass takes as long as its forward more, and at
// most one segment is there whole. Segments are those that need the least memory. A workload of unknown
// activations stays without, and its backward passes become longer all the same.
Workload with_activation_checkpointing(Workload workload);

}  // namespace dear
