#pragma once

#include <cstdint>

// Indices into the vectors of a Workload, a Grouping and a Schedule, each from 0.
namespace dear {

using LayerId = std::uint32_t;   // in forward order
using TensorId = std::uint32_t;  // in the order in which layers first use them
using BucketId = std::uint32_t;  // in forward order
using StepId = std::uint32_t;    // in the order in which a policy added them
using LaneId = std::uint32_t;

}  // namespace dear
