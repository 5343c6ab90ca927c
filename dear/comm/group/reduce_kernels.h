#pragma once

#include <cstdint>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/reduction.h"

// The inner loops of reduce(), compiled once for each set of processor instructions. All give the same bits.
namespace dear::comm {

// out[i] = (sources[0][i] (op) sources[1][i] (op) ...) / divisor. Nothing where obstacle_to() names one.
struct Sources {
  const void* const* data;
  int count;  // at least 1
};
using ReduceKernel = void (*)(const Sources& sources, void* out, std::int64_t count, std::int64_t divisor);

ReduceKernel find_baseline_kernel(DType dtype, Reduction reduction);
// The kernel for AVX2 and F16C; nullptr where the compiler has none, or the type gains nothing.
ReduceKernel find_avx2_kernel(DType dtype, Reduction reduction);

// The kernel that this processor runs fastest.
ReduceKernel find_kernel(DType dtype, Reduction reduction);

}  // namespace dear::comm
