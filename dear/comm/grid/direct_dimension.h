#pragma once

#include <cstddef>
#include <functional>

#include "dear/comm/group/buffer.h"

namespace dear::grid {

// A dimension whose members read each other's memory.
struct DirectDimension {
  int dimension = 0;
  // Where a member's part of a buffer of that line lies.
  std::function<const std::byte*(const Buffer& buffer, int member)> part_of;
};

}  // namespace dear::grid
