#pragma once

#include <cstddef>
#include <cstdint>

namespace dear {

// Indices into the vectors of a Workload, a Grouping and a Schedule, each from 0.
using LayerId = std::uint32_t;   // in forward order
using TensorId = std::uint32_t;  // in the order in which layers first use them
using BucketId = std::uint32_t;  // in forward order
using StepId = std::uint32_t;    // in the order in which a policy added them
using LaneId = std::uint32_t;

// A number from 0 on, as an index into a vector.
constexpr std::size_t index_of(int number) { return static_cast<std::size_t>(number); }

}  // namespace dear
