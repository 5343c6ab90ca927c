#pragma once

#include <cstdint>
#include <span>

#include "dear/schedule/codec/coordinate.h"
#include "dear/schedule/codec/hash.h"

// The inner loops of codecs, compiled once for each set of processor instructions. All give the same bits.
namespace dear::codec {

// Collected is the output of collect(): coordinates in memory of the caller.
struct Collected {
  Coordinate* coordinates;
  std::int64_t count;
  std::int64_t capacity;
};
// collect() looks at so many values at a time, and stops where they might not fit any more.
constexpr std::int64_t kCollectedTogether = 32;

// Tells the sizes of a matrix M, row by row, and of its factors P (rows x rank) and Q (columns x rank),
// column by column.
struct Factored {
  std::int64_t rows, columns, rank;
};

struct Kernels {
  // Appends the elements of order at least `floor`, from `begin` on and in their order, to `to`.
  // Returns where it stopped: at `end`, or where less than kCollectedTogether would fit.
  std::int64_t (*collect)(const float* values, std::int64_t begin, std::int64_t end, std::uint32_t floor,
                          Collected& to);
  // Returns the sum of squares, in fp64 and 16 partial sums: those of elements whose places differ by a
  // multiple of 16, which are added up in pairs at distance 8, 4, 2, 1.
  double (*sum_of_squares)(const float* values, std::int64_t count);

  // Conversions round to nearest even (base/vocabulary/half.h). `subtract` takes the widened numbers from
  // `values`.
  struct Narrow {
    void (*narrow)(const float* values, std::int64_t count, std::uint16_t* to);
    void (*widen)(const std::uint16_t* from, std::int64_t count, float* values);
    void (*subtract)(const std::uint16_t* from, std::int64_t count, float* values);
  };
  Narrow f16, bf16;

  // P = M Q;  Q = M^T P;  M = P Q^T;  M -= P Q^T.
  void (*multiply)(const Factored& size, const float* m, const float* q, float* p);
  void (*multiply_transposed)(const Factored& size, const float* m, const float* p, float* q);
  void (*product)(const Factored& size, const float* p, const float* q, float* m);
  void (*subtract_product)(const Factored& size, const float* p, const float* q, float* m);

  // KeyHash::group(), and the three KeyHash::row(), of many keys.
  void (*groups)(const KeyHash& hash, const std::uint32_t* keys, std::int64_t count, std::uint32_t groups,
                 std::uint16_t* out);
  void (*rows)(const KeyHash& hash, const std::uint32_t* keys, std::int64_t count, std::uint32_t range,
               PackedRows* out);

  // Sets bit i of `bits` where values[i] is not zero (-0.0 is zero, a denormal is not), and clears it
  // elsewhere, in the ceil(count / 64) words of `bits`. Returns the bits of the largest magnitude, which are
  // ordered as magnitudes are, with those of infinity and of NaN above all numbers.
  std::uint32_t (*scan)(const float* values, std::int64_t count, std::uint64_t* bits);
};

const Kernels& baseline_kernels();
// nullptr where the compiler has no AVX2 and F16C.
const Kernels* avx2_kernels();

// Those that this processor runs fastest.
const Kernels& kernels();

inline constexpr std::uint32_t kInfinityBits = 0x7f800000U;
bool all_finite(std::span<const float> values);

}  // namespace dear::codec
