#include "dear/collective/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "dear/base/error.h"
#include "dear/collective/half.h"

namespace dear::collective {
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

// Partial results of a block stay in the first-level cache; every source is read once, in one forward stream.
constexpr std::int64_t kBlock = 2048;

template <typename T, typename Op>
void reduce_block(const std::vector<const std::byte*>& sources, std::int64_t begin, T* out,
                  std::int64_t count, std::int64_t divisor) {
  using Sum = typename Element<T>::Sum;
  std::array<Sum, kBlock> partial;
  const auto source = [&](std::size_t rank) { return reinterpret_cast<const T*>(sources[rank]) + begin; };
  const T* first = source(0);
  for (std::int64_t i = 0; i < count; ++i) {
    partial[i] = Element<T>::load(first[i]);
  }
  for (std::size_t rank = 1; rank < sources.size(); ++rank) {
    const T* next = source(rank);
    for (std::int64_t i = 0; i < count; ++i) {
      partial[i] = Op::apply(partial[i], Element<T>::load(next[i]));
    }
  }
  if (divisor != 1) {
    const auto by = static_cast<Sum>(divisor);
    for (std::int64_t i = 0; i < count; ++i) {
      partial[i] /= by;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = Element<T>::store(partial[i]);
  }
}

template <typename T, typename Op>
void reduce_all(const std::vector<const std::byte*>& sources, std::byte* out, std::int64_t count,
                std::int64_t divisor) {
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    reduce_block<T, Op>(sources, begin, reinterpret_cast<T*>(out) + begin, std::min(kBlock, count - begin),
                        divisor);
  }
}

template <typename T>
void reduce_as(Reduction reduction, const std::vector<const std::byte*>& sources, std::byte* out,
               std::int64_t count) {
  switch (reduction) {
    case Reduction::sum:
      return reduce_all<T, Add>(sources, out, count, 1);
    case Reduction::average:
      return reduce_all<T, Add>(sources, out, count, static_cast<std::int64_t>(sources.size()));
    case Reduction::max:
      return reduce_all<T, Max>(sources, out, count, 1);
    case Reduction::min:
      return reduce_all<T, Min>(sources, out, count, 1);
  }
}

}  // namespace

void reduce(DType dtype, Reduction reduction, const std::vector<const std::byte*>& sources, std::byte* out,
            std::int64_t count) {
  if (count == 0) {
    return;
  }
  switch (dtype) {
    case DType::f32:
      return reduce_as<float>(reduction, sources, out, count);
    case DType::f64:
      return reduce_as<double>(reduction, sources, out, count);
    case DType::f16:
      return reduce_as<Half>(reduction, sources, out, count);
    case DType::bf16:
      return reduce_as<BFloat16>(reduction, sources, out, count);
    case DType::i32:
      return reduce_as<std::int32_t>(reduction, sources, out, count);
    case DType::i64:
      return reduce_as<std::int64_t>(reduction, sources, out, count);
    case DType::u8:
      if (reduction == Reduction::max) {
        return reduce_all<std::uint8_t, Max>(sources, out, count, 1);
      }
      if (reduction == Reduction::min) {
        return reduce_all<std::uint8_t, Min>(sources, out, count, 1);
      }
      throw ConfigError("cannot add bytes: use int32 to count");
  }
  throw ConfigError("cannot reduce elements of an unknown type");
}

}  // namespace dear::collective
