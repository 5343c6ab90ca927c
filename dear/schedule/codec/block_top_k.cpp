#include "dear/schedule/codec/block_top_k.h"

#include <algorithm>
#include <cmath>

#include "dear/schedule/codec/kernels.h"

namespace dear::codec {

// Sums of squares are compared in fp64, in which the square of every fp32 number is exact.
std::int64_t BlockTopK::choose(std::span<const float> values, std::uint64_t /*key*/, std::int64_t /*step*/,
                               std::int64_t count) {
  const Kernels& kernel = kernels();
  double largest = -1;
  std::int64_t chosen = 0;
  for (std::int64_t next = 0; next < std::ssize(values); next += count) {
    const std::int64_t begin = std::min(next, std::ssize(values) - count);
    const double sum = kernel.sum_of_squares(values.data() + begin, count);
    if (std::isnan(sum)) {
      return begin;
    }
    if (sum > largest) {
      largest = sum;
      chosen = begin;
    }
  }
  return chosen;
}

}  // namespace dear::codec
