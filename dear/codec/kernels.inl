// Included once by each source that is compiled for one set of instructions. Everything here is local to that
// source and forced inline where it has a name elsewhere: a function that two of them shared could be linked
// from the one that this processor cannot run.

#include <cstring>

#include "dear/base/half.h"
#include "dear/codec/kernels.h"

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

using EightFloats = float __attribute__((vector_size(32)));
using EightDoubles = double __attribute__((vector_size(64)));

double sum_of_squares(const float* values, std::int64_t count) {
  EightDoubles sums[2] = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int half = 0; half < 2; ++half) {
      EightFloats narrow;
      std::memcpy(&narrow, values + i + 8 * half, sizeof narrow);
      const EightDoubles wide = __builtin_convertvector(narrow, EightDoubles);
      sums[half] += wide * wide;
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

constexpr Kernels kernels_of_this_source() {
  return {.collect = collect,
          .sum_of_squares = sum_of_squares,
          .f16 = conversion_of<Half>(),
          .bf16 = conversion_of<BFloat16>()};
}

}  // namespace
}  // namespace dear::codec
