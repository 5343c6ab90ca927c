#pragma once

#include <cstdint>

namespace dear {

// What becomes of a model's buffers (BatchNorm's running statistics). At construction they become rank 0's.
enum class BufferSync : std::uint8_t {
  at_construction,  // each rank keeps its own from then on
  at_synchronize,   // they become rank 0's at every synchronize() between a step() and the next backward
  averaged,         // they become the mean over ranks there; those of integers become rank 0's
  at_forward,       // as at_synchronize, and at every broadcast_buffers()
};

}  // namespace dear
