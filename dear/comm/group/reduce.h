#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/reduction.h"

// The arithmetic of reductions, in one thread on memory it can reach.
namespace dear::comm {

// out[i] = sources[0][i] (op) sources[1][i] (op) ..., in this order, whatever the count. fp16 and bf16 are
// accumulated in fp32 and rounded once, to nearest even; int32 is accumulated in int64 and wraps when stored;
// int64 wraps. An average is the sum divided by the number of sources, truncated for integers. A NaN in a
// source is one in the result. ConfigError where obstacle_to() names an obstacle. `out` may be one of the
// sources; other overlaps are not allowed. All are aligned to the element size.
void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources, std::byte* out,
            std::int64_t count);

// Whether an average of such elements is truncated, and its sum may wrap: then parts of it cannot be added up
// apart.
constexpr bool is_integer(DType dtype) {
  return dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8;
}

}  // namespace dear::comm
