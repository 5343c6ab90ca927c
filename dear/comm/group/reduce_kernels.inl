// Included once by each source that is compiled for one set of instructions. Everything here is local to that
// source and forced inline where it has a name elsewhere: a function that two of them shared could be linked
// from the one that this processor cannot run.

#include <cstring>
#include <type_traits>

#include "dear/base/vocabulary/half.h"
#include "dear/comm/group/reduce_kernels.h"

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

// `out` may be one of the sources, at the same elements: nothing is carried from one to the next.
#if defined(__clang__)
#define DEAR_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DEAR_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace dear::comm {
namespace {

// How an element type is accumulated.
template <typename T>
struct Element {
  using Sum = T;
  static Sum load(T value) { return value; }
  static T store(Sum value) { return value; }
};
template <>
struct Element<Half> {
  using Sum = float;
  static float load(Half value) { return widen(value); }
  static Half store(float value) { return narrow_to_half(value); }
};
template <>
struct Element<BFloat16> {
  using Sum = float;
  static float load(BFloat16 value) { return widen(value); }
  static BFloat16 store(float value) { return narrow_to_bfloat16(value); }
};
template <>
struct Element<std::int32_t> {
  using Sum = std::int64_t;
  static Sum load(std::int32_t value) { return value; }
  static std::int32_t store(Sum value) { return static_cast<std::int32_t>(value); }
};

struct Add {
  template <typename Sum>
  static Sum apply(Sum a, Sum b) {
    if constexpr (std::is_integral_v<Sum>) {
      using Unsigned = std::make_unsigned_t<Sum>;  // wraps where the signed sum would be undefined
      return static_cast<Sum>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};
// `a != a` keeps a NaN of the first operand; one of the second wins because every comparison with it is
// false.
struct Max {
  template <typename Sum>
  static Sum apply(Sum a, Sum b) {
    return (a > b || a != a) ? a : b;
  }
};
struct Min {
  template <typename Sum>
  static Sum apply(Sum a, Sum b) {
    return (a < b || a != a) ? a : b;
  }
};

struct Or {
  template <typename Sum>
  static Sum apply(Sum a, Sum b) {
    return a | b;
  }
};

// Averages exist of sums only; for any other reduction the divisor is 1.
template <typename Op>
constexpr bool kDivides = std::is_same_v<Op, Add>;

// The number of elements whose partial results are kept between passes: they stay in the first-level cache.
constexpr std::int64_t kBlock = 2048;
// The number of sources read at once. More would be more streams than the prefetching of a processor follows.
constexpr int kAtOnce = 4;

// One pass over [begin, begin + count) of `N` sources. What was accumulated before comes from `partial`
// unless this pass is the first; what comes out goes to `out` if it is the last, else to `partial`.
enum class Pass { only, first, middle, last };

template <typename T, typename Op, int N, Pass kPass>
void pass_over(const T* const* sources, typename Element<T>::Sum* partial, T* out, std::int64_t count,
               std::int64_t divisor) {
  using Sum = typename Element<T>::Sum;
  const T* source[N];
  for (int n = 0; n < N; ++n) source[n] = sources[n];
  const auto sum_of = [&](std::int64_t i) {
    constexpr bool kFresh = kPass == Pass::only || kPass == Pass::first;
    Sum sum = kFresh ? Element<T>::load(source[0][i]) : partial[i];
    for (int n = kFresh ? 1 : 0; n < N; ++n) sum = Op::apply(sum, Element<T>::load(source[n][i]));
    return sum;
  };
  if constexpr (kPass == Pass::first || kPass == Pass::middle) {
    DEAR_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) partial[i] = sum_of(i);
  } else {
    if constexpr (kDivides<Op>) {
      if (divisor != 1) {
        const auto by = static_cast<Sum>(divisor);
        DEAR_INDEPENDENT
        for (std::int64_t i = 0; i < count; ++i) out[i] = Element<T>::store(sum_of(i) / by);
        return;
      }
    }
    DEAR_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) out[i] = Element<T>::store(sum_of(i));
  }
}

#if defined(__F16C__) && defined(__AVX2__)
// As many numbers as are accumulated at a time, as fp32; what is left goes one by one.
template <typename T>
struct Vector;

template <>
struct Vector<Half> {
  static constexpr int kParts = 1;  // of eight
  __m256 parts[kParts];

  static Vector load(const Half* at) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)))};
  }
  void store(Half* at) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_cvtps_ph(parts[0], _MM_FROUND_TO_NEAREST_INT));
  }
};

// Those at even places and those at odd ones, which stand where an fp32 has its upper half: nothing has to be
// moved between the lanes of a register, and a sum takes no longer than memory does.
template <>
struct Vector<BFloat16> {
  static constexpr int kParts = 2;
  __m256 parts[kParts];

  static Vector load(const BFloat16* at) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(~0xffff)))};
  }
  // Rounds as narrow_to_bfloat16() does.
  void store(BFloat16* at) const {
    __m256i even = rounded(parts[0]), odd = rounded(parts[1]);
    if (_mm256_movemask_ps(_mm256_cmp_ps(parts[0], parts[1], _CMP_UNORD_Q)) != 0) [[unlikely]] {
      even = quiet_if_nan(parts[0], even);
      odd = quiet_if_nan(parts[1], odd);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at),
                        _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa));
  }

 private:
  // Those of the upper half are the result.
  static __m256i rounded(__m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i lowest = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), lowest);
  }
  static __m256i quiet_if_nan(__m256 value, __m256i rounded) {
    const __m256i quiet = _mm256_or_si256(_mm256_castps_si256(value), _mm256_set1_epi32(0x40 << 16));
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q)));
  }
};

struct Eight {
  static __m256 apply(Add, __m256 a, __m256 b) { return _mm256_add_ps(a, b); }
  template <int kComparison>
  static __m256 choose(__m256 a, __m256 b) {
    const __m256 keep = _mm256_or_ps(_mm256_cmp_ps(a, b, kComparison), _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_blendv_ps(b, a, keep);
  }
  static __m256 apply(Max, __m256 a, __m256 b) { return choose<_CMP_GT_OQ>(a, b); }
  static __m256 apply(Min, __m256 a, __m256 b) { return choose<_CMP_LT_OQ>(a, b); }
};

template <typename T, typename Op, int N, Pass kPass>
std::int64_t pass_by_vectors(const T* const* sources, float* partial, T* out, std::int64_t count,
                             std::int64_t divisor) {
  constexpr int kParts = Vector<T>::kParts;
  constexpr int kLength = 8 * kParts;
  const T* source[N];
  for (int n = 0; n < N; ++n) source[n] = sources[n];
  const __m256 by = _mm256_set1_ps(static_cast<float>(divisor));
  std::int64_t i = 0;
  for (; i + kLength <= count; i += kLength) {
    constexpr bool kFresh = kPass == Pass::only || kPass == Pass::first;
    Vector<T> sum;
    if constexpr (kFresh) {
      sum = Vector<T>::load(source[0] + i);
    } else {
      for (int part = 0; part < kParts; ++part) sum.parts[part] = _mm256_loadu_ps(partial + i + 8 * part);
    }
    for (int n = kFresh ? 1 : 0; n < N; ++n) {
      const Vector<T> next = Vector<T>::load(source[n] + i);
      for (int part = 0; part < kParts; ++part) {
        sum.parts[part] = Eight::apply(Op{}, sum.parts[part], next.parts[part]);
      }
    }
    if constexpr (kPass == Pass::first || kPass == Pass::middle) {
      for (int part = 0; part < kParts; ++part) _mm256_storeu_ps(partial + i + 8 * part, sum.parts[part]);
      continue;
    }
    if (kDivides<Op> && divisor != 1) {
      for (int part = 0; part < kParts; ++part) sum.parts[part] = _mm256_div_ps(sum.parts[part], by);
    }
    sum.store(out + i);
  }
  return i;
}
#endif

template <typename T, typename Op, int N, Pass kPass>
void pass(const T* const* sources, std::int64_t begin, typename Element<T>::Sum* partial, T* out,
          std::int64_t count, std::int64_t divisor) {
  const T* from[N];
  for (int n = 0; n < N; ++n) from[n] = sources[n] + begin;
  std::int64_t done = 0;
#if defined(__F16C__) && defined(__AVX2__)
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    done = pass_by_vectors<T, Op, N, kPass>(from, partial, out + begin, count, divisor);
    for (int n = 0; n < N; ++n) from[n] += done;
  }
#endif
  pass_over<T, Op, N, kPass>(from, partial + done, out + begin + done, count - done, divisor);
}

template <typename T, typename Op, Pass kPass, typename... Rest>
void pass_of(int sources, Rest... rest) {
  switch (sources) {
    case 1:
      return pass<T, Op, 1, kPass>(rest...);
    case 2:
      return pass<T, Op, 2, kPass>(rest...);
    case 3:
      return pass<T, Op, 3, kPass>(rest...);
    default:
      return pass<T, Op, kAtOnce, kPass>(rest...);
  }
}

template <typename T, typename Op>
void reduce_kernel(const Sources& sources, void* to, std::int64_t count, std::int64_t divisor) {
  const auto* const* data = reinterpret_cast<const T* const*>(sources.data);
  auto* out = static_cast<T*>(to);
  typename Element<T>::Sum partial[kBlock];
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t size = count - begin < kBlock ? count - begin : kBlock;
    if (sources.count <= kAtOnce) {
      pass_of<T, Op, Pass::only>(sources.count, data, begin, partial, out, size, divisor);
      continue;
    }
    pass<T, Op, kAtOnce, Pass::first>(data, begin, partial, out, size, divisor);
    int done = kAtOnce;
    for (; sources.count - done > kAtOnce; done += kAtOnce) {
      pass<T, Op, kAtOnce, Pass::middle>(data + done, begin, partial, out, size, divisor);
    }
    pass_of<T, Op, Pass::last>(sources.count - done, data + done, begin, partial, out, size, divisor);
  }
}

template <typename T>
ReduceKernel kernel_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
    case Reduction::average:
      if constexpr (!std::is_same_v<T, std::uint8_t>) return reduce_kernel<T, Add>;
      return nullptr;
    case Reduction::max:
      return reduce_kernel<T, Max>;
    case Reduction::min:
      return reduce_kernel<T, Min>;
    case Reduction::bitwise_or:
      if constexpr (std::is_integral_v<T>) return reduce_kernel<T, Or>;
      return nullptr;
  }
  return nullptr;
}

ReduceKernel find(DType dtype, Reduction reduction) {
  switch (dtype) {
    case DType::f32:
      return kernel_of<float>(reduction);
    case DType::f64:
      return kernel_of<double>(reduction);
    case DType::f16:
      return kernel_of<Half>(reduction);
    case DType::bf16:
      return kernel_of<BFloat16>(reduction);
    case DType::i32:
      return kernel_of<std::int32_t>(reduction);
    case DType::i64:
      return kernel_of<std::int64_t>(reduction);
    case DType::u8:
      return kernel_of<std::uint8_t>(reduction);
  }
  return nullptr;
}

}  // namespace
}  // namespace dear::comm

#undef DEAR_INDEPENDENT
