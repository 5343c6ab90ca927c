#pragma once

#include <cstdint>

#include "dear/base/vocabulary/dtype.h"

namespace dear::metrics {

// The elements of a span that are NaN or infinite.
struct NonFinite {
  std::int64_t count = 0;
  std::int64_t first = -1;  // index; -1 where there is none
};

// One pass over `count` elements, about as fast as memory is read. Integers are finite.
NonFinite find_nonfinite(const void* data, std::int64_t count, DType dtype);

}  // namespace dear::metrics
