// Included once by each source that is compiled for one set of instructions. Everything here is local to that
// source and forced inline where it has a name elsewhere: a function that two of them shared could be linked
// from the one that this processor cannot run.

#include <cstring>

#include "dear/base/vocabulary/half.h"
#include "dear/schedule/codec/kernels.h"

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dear::codec {
namespace {

std::uint32_t order_at(const float* values, std::int64_t i) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, values + i, sizeof bits);
  return order_of(bits);
}

// A bit for each of the next kCollectedTogether elements: whether its order is at least `floor`.
std::uint32_t chosen_of(const float* values, std::uint32_t floor) {
  std::uint32_t chosen = 0;
#if defined(__F16C__) && defined(__AVX2__)
  // Orders are less than 2^31, so that signed comparisons do.
  const __m256i below = _mm256_set1_epi32(static_cast<int>(floor - 1));
  for (int part = 0; part < 4; ++part) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + 8 * part));
    const __m256i order = _mm256_min_epu32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)),
                                           _mm256_set1_epi32(static_cast<int>(kNanOrder)));
    const int mask = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(order, below)));
    chosen |= static_cast<std::uint32_t>(mask) << (8 * part);
  }
#else
  for (int i = 0; i < kCollectedTogether; ++i) {
    chosen |= static_cast<std::uint32_t>(order_at(values, i) >= floor) << i;
  }
#endif
  return chosen;
}

std::int64_t collect(const float* values, std::int64_t begin, std::int64_t end, std::uint32_t floor,
                     Collected& to) {
  std::int64_t count = to.count;
  const auto append = [&](std::int64_t i) {
    to.coordinates[count].index = static_cast<std::uint32_t>(i);
    std::memcpy(&to.coordinates[count].value, values + i, sizeof(float));
    ++count;
  };
  std::int64_t at = begin;
  while (count + kCollectedTogether <= to.capacity && at < end) {
    if (end - at < kCollectedTogether) {
      for (; at < end; ++at) {
        if (order_at(values, at) >= floor) append(at);
      }
      break;
    }
    for (std::uint32_t chosen = chosen_of(values + at, floor); chosen != 0; chosen &= chosen - 1) {
      append(at + __builtin_ctz(chosen));
    }
    at += kCollectedTogether;
  }
  to.count = count;
  return at;
}

// Numbers of one register. Longer vectors would be put together in memory.
#if defined(__F16C__) && defined(__AVX2__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif
using Floats = float __attribute__((vector_size(kRegisterBytes)));
using Doubles = double __attribute__((vector_size(kRegisterBytes)));
constexpr int kFloats = kRegisterBytes / 4;
constexpr int kDoubles = kRegisterBytes / 8;

double sum_of_squares(const float* values, std::int64_t count) {
  Doubles sums[16 / kDoubles] = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int part = 0; part < 16 / kDoubles; ++part) {
#if defined(__F16C__) && defined(__AVX2__)
      const Doubles wide = _mm256_cvtps_pd(_mm_loadu_ps(values + i + kDoubles * part));
#else
      const float* narrow = values + i + kDoubles * part;
      const Doubles wide = {narrow[0], narrow[1]};
#endif
      sums[part] += wide * wide;
    }
  }
  double partial[16];
  std::memcpy(partial, sums, sizeof partial);
  for (int place = 0; i < count; ++i, ++place) {
    const double wide = values[i];
    partial[place] += wide * wide;
  }
  for (int distance = 8; distance > 0; distance /= 2) {
    for (int place = 0; place < distance; ++place) partial[place] += partial[place + distance];
  }
  return partial[0];
}

// Elements of payloads lie at any even address, as `unsigned short` may.
template <class Narrow>
struct Conversion {
  static Narrow narrowed(float value);

  static void narrow(const float* values, std::int64_t count, std::uint16_t* to) {
    for (std::int64_t i = vectors(values, count, to); i < count; ++i) to[i] = narrowed(values[i]).bits;
  }
  static void widen(const std::uint16_t* from, std::int64_t count, float* values) {
    for (std::int64_t i = vectors<false>(from, count, values); i < count; ++i) {
      values[i] = dear::widen(Narrow{from[i]});
    }
  }
  static void subtract(const std::uint16_t* from, std::int64_t count, float* values) {
    for (std::int64_t i = vectors<true>(from, count, values); i < count; ++i) {
      values[i] -= dear::widen(Narrow{from[i]});
    }
  }

 private:
  // Convert as many as go eight at a time, and return how many these are. Loops that a compiler vectorises by
  // itself need none.
  static std::int64_t vectors(const float* /*values*/, std::int64_t /*count*/, std::uint16_t* /*to*/) {
    return 0;
  }
  template <bool kSubtract>
  static std::int64_t vectors(const std::uint16_t* /*from*/, std::int64_t /*count*/, float* /*values*/) {
    return 0;
  }
};

template <>
Half Conversion<Half>::narrowed(float value) {
  return narrow_to_half(value);
}
template <>
BFloat16 Conversion<BFloat16>::narrowed(float value) {
  return narrow_to_bfloat16(value);
}

#if defined(__F16C__) && defined(__AVX2__)
template <>
std::int64_t Conversion<Half>::vectors(const float* values, std::int64_t count, std::uint16_t* to) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}
template <>
template <bool kSubtract>
std::int64_t Conversion<Half>::vectors(const std::uint16_t* from, std::int64_t count, float* values) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    _mm256_storeu_ps(values + i, kSubtract ? _mm256_sub_ps(_mm256_loadu_ps(values + i), wide) : wide);
  }
  return i;
}
#endif

template <class Narrow>
constexpr Kernels::Narrow conversion_of() {
  return {.narrow = Conversion<Narrow>::narrow,
          .widen = Conversion<Narrow>::widen,
          .subtract = Conversion<Narrow>::subtract};
}

// Vectors of a factor that are worked on together: more would not fit into the registers.
constexpr int kTogether = 4;

// The scalar products of a row of M with `kCount` columns of Q, in eight partial sums.
template <int kCount>
void row_times(const float* row, std::int64_t columns, const float* q, float* p, std::int64_t rows) {
  Floats sums[kCount][8 / kFloats] = {};
  std::int64_t i = 0;
  for (; i + 8 <= columns; i += 8) {
    for (int part = 0; part < 8 / kFloats; ++part) {
      Floats of_row, of_q;
      std::memcpy(&of_row, row + i + kFloats * part, sizeof of_row);
      for (int j = 0; j < kCount; ++j) {
        std::memcpy(&of_q, q + j * columns + i + kFloats * part, sizeof of_q);
        sums[j][part] += of_row * of_q;
      }
    }
  }
  for (int j = 0; j < kCount; ++j) {
    float partial[8];
    std::memcpy(partial, &sums[j], sizeof partial);
    for (std::int64_t rest = i; rest < columns; ++rest)
      partial[rest - i] += row[rest] * q[j * columns + rest];
    for (int distance = 4; distance > 0; distance /= 2) {
      for (int place = 0; place < distance; ++place) partial[place] += partial[place + distance];
    }
    p[j * rows] = partial[0];
  }
}

void multiply(const Factored& size, const float* m, const float* q, float* p) {
  for (std::int64_t row = 0; row < size.rows; ++row) {
    const float* of_row = m + row * size.columns;
    std::int64_t j = 0;
    for (; j + kTogether <= size.rank; j += kTogether) {
      row_times<kTogether>(of_row, size.columns, q + j * size.columns, p + j * size.rows + row, size.rows);
    }
    for (; j < size.rank; ++j) {
      row_times<1>(of_row, size.columns, q + j * size.columns, p + j * size.rows + row, size.rows);
    }
  }
}

// So many columns of M at a time that those of Q stay in the first-level cache from row to row.
constexpr std::int64_t kColumns = 1024;

void multiply_transposed(const Factored& size, const float* m, const float* p, float* q) {
  for (std::int64_t i = 0; i < size.rank * size.columns; ++i) q[i] = 0;
  for (std::int64_t begin = 0; begin < size.columns; begin += kColumns) {
    const std::int64_t count = size.columns - begin < kColumns ? size.columns - begin : kColumns;
    std::int64_t row = 0;
    for (; row + kTogether <= size.rows; row += kTogether) {
      const float* a = m + row * size.columns + begin;
      const float* b = a + size.columns;
      const float* c = b + size.columns;
      const float* d = c + size.columns;
      for (std::int64_t j = 0; j < size.rank; ++j) {
        const float* by = p + j * size.rows + row;
        const float by_a = by[0], by_b = by[1], by_c = by[2], by_d = by[3];
        float* __restrict to = q + j * size.columns + begin;
        for (std::int64_t i = 0; i < count; ++i) {
          to[i] += (by_a * a[i] + by_b * b[i]) + (by_c * c[i] + by_d * d[i]);
        }
      }
    }
    for (; row < size.rows; ++row) {
      const float* a = m + row * size.columns + begin;
      for (std::int64_t j = 0; j < size.rank; ++j) {
        const float by_a = p[j * size.rows + row];
        float* __restrict to = q + j * size.columns + begin;
        for (std::int64_t i = 0; i < count; ++i) to[i] += by_a * a[i];
      }
    }
  }
}

template <bool kSubtract>
void product(const Factored& size, const float* p, const float* q, float* m) {
  for (std::int64_t row = 0; row < size.rows; ++row) {
    float* __restrict to = m + row * size.columns;
    const float* by = p + row;
    float sum[kColumns];
    for (std::int64_t begin = 0; begin < size.columns; begin += kColumns) {
      const std::int64_t count = size.columns - begin < kColumns ? size.columns - begin : kColumns;
      const float* a = q + begin;
      for (std::int64_t i = 0; i < count; ++i) sum[i] = by[0] * a[i];
      for (std::int64_t j = 1; j < size.rank; ++j) {
        const float by_j = by[j * size.rows];
        const float* of_j = a + j * size.columns;
        for (std::int64_t i = 0; i < count; ++i) sum[i] += by_j * of_j[i];
      }
      for (std::int64_t i = 0; i < count; ++i) to[begin + i] = kSubtract ? to[begin + i] - sum[i] : sum[i];
    }
  }
}

void groups_of(const KeyHash& hash, const std::uint32_t* keys, std::int64_t count, std::uint32_t groups,
               std::uint16_t* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::uint16_t>(hash.group(keys[i], groups));
}

void rows_of(const KeyHash& hash, const std::uint32_t* keys, std::int64_t count, std::uint32_t range,
             PackedRows* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = packed(hash.row(0, keys[i], range), hash.row(1, keys[i], range), hash.row(2, keys[i], range));
}

std::uint32_t scan(const float* values, std::int64_t count, std::uint64_t* bits) {
  std::uint32_t largest = 0;
  std::int64_t begin = 0;
#if defined(__F16C__) && defined(__AVX2__)
  const __m256i zero = _mm256_setzero_si256();
  __m256i most = zero;
  for (; begin + 64 <= count; begin += 64) {
    std::uint64_t word = 0;
    for (int part = 0; part < 8; ++part) {
      const __m256i loaded = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + begin + 8 * part));
      const __m256i magnitude = _mm256_and_si256(loaded, _mm256_set1_epi32(0x7fffffff));
      most = _mm256_max_epi32(most, magnitude);
      const int some = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(magnitude, zero)));
      word |= static_cast<std::uint64_t>(static_cast<unsigned>(some)) << (8 * part);
    }
    bits[begin / 64] = word;
  }
  alignas(32) std::uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), most);
  for (const std::uint32_t lane : lanes) largest = lane > largest ? lane : largest;
#endif
  for (; begin < count; begin += 64) {
    const std::int64_t length = count - begin < 64 ? count - begin : 64;
    std::uint64_t word = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      std::uint32_t magnitude = 0;
      std::memcpy(&magnitude, values + begin + i, sizeof magnitude);
      magnitude &= 0x7fffffffU;
      largest = magnitude > largest ? magnitude : largest;
      word |= std::uint64_t{magnitude != 0} << i;
    }
    bits[begin / 64] = word;
  }
  return largest;
}

constexpr Kernels kernels_of_this_source() {
  return {.collect = collect,
          .sum_of_squares = sum_of_squares,
          .f16 = conversion_of<Half>(),
          .bf16 = conversion_of<BFloat16>(),
          .multiply = multiply,
          .multiply_transposed = multiply_transposed,
          .product = product<false>,
          .subtract_product = product<true>,
          .groups = groups_of,
          .rows = rows_of,
          .scan = scan};
}

}  // namespace
}  // namespace dear::codec
