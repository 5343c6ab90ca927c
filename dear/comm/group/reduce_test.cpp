#include "dear/comm/group/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/half.h"
#include "dear/comm/group/reduce_kernels.h"

namespace dear::comm::reduce_test {
namespace {

template <typename T>
using BitsOf =
    std::conditional_t<sizeof(T) == 1, std::uint8_t,
                       std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                          std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return std::isnan(widen(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::isnan(value);
  } else {
    return false;
  }
}

template <typename T>
std::vector<T> reduced(DType dtype, Reduction reduction, const std::vector<std::vector<T>>& sources) {
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) {
    pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
  }
  std::vector<T> out(sources.front().size());
  reduce(dtype, reduction, pointers, reinterpret_cast<std::byte*>(out.data()),
         static_cast<std::int64_t>(out.size()));
  return out;
}

TEST(Reduce, AddsInTheOrderOfTheSources) {
  // 1e8 + 1 is 1e8 in fp32, so each order has a sum of its own.
  EXPECT_EQ(reduced<float>(DType::f32, Reduction::sum, {{1e8F}, {1}, {-1e8F}}), std::vector<float>{0});
  EXPECT_EQ(reduced<float>(DType::f32, Reduction::sum, {{1e8F}, {-1e8F}, {1}}), std::vector<float>{1});
}

TEST(Reduce, RoundsNarrowTypesOnce) {
  // 2048 + 1 rounds back to 2048 in fp16; in fp32 the two ones count.
  const Half large = narrow_to_half(2048);
  const Half one = narrow_to_half(1);
  EXPECT_EQ(widen(reduced<Half>(DType::f16, Reduction::sum, {{large}, {one}, {one}})[0]), 2050);
  const BFloat16 big = narrow_to_bfloat16(256);
  const BFloat16 unit = narrow_to_bfloat16(1);
  EXPECT_EQ(widen(reduced<BFloat16>(DType::bf16, Reduction::sum, {{big}, {unit}, {unit}})[0]), 258);
  // The sum does not fit into fp16, the average does.
  const Half huge = narrow_to_half(60000);
  EXPECT_EQ(widen(reduced<Half>(DType::f16, Reduction::average, {{huge}, {huge}})[0]), widen(huge));
}

TEST(Reduce, TruncatesIntegerAverages) {
  EXPECT_EQ(reduced<std::int32_t>(DType::i32, Reduction::average, {{7, -7}, {0, 0}}),
            (std::vector<std::int32_t>{3, -3}));
  EXPECT_EQ(reduced<std::int64_t>(DType::i64, Reduction::average, {{7, -7}, {0, 0}}),
            (std::vector<std::int64_t>{3, -3}));
}

TEST(Reduce, DefinesIntegerOverflow) {
  constexpr auto kMost32 = std::numeric_limits<std::int32_t>::max();
  constexpr auto kMost64 = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(reduced<std::int32_t>(DType::i32, Reduction::average, {{kMost32}, {kMost32}})[0], kMost32);
  EXPECT_EQ(reduced<std::int32_t>(DType::i32, Reduction::sum, {{kMost32}, {1}})[0],
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(reduced<std::int64_t>(DType::i64, Reduction::sum, {{kMost64}, {1}})[0],
            std::numeric_limits<std::int64_t>::min());
}

TEST(Reduce, KeepsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::max, Reduction::min}) {
    for (const float value : reduced<float>(DType::f32, reduction, {{nan, 1, 1}, {1, nan, 1}, {1, 1, nan}})) {
      EXPECT_TRUE(std::isnan(value)) << name_of(reduction);
    }
  }
}

TEST(Reduce, MayWriteOverOneOfItsSources) {
  std::vector<double> first(5000, 1.5);
  std::vector<double> second(5000, 2.25);
  auto* out = reinterpret_cast<std::byte*>(second.data());
  const std::vector<const std::byte*> sources{reinterpret_cast<const std::byte*>(first.data()), out};
  reduce(DType::f64, Reduction::sum, sources, out, 5000);
  EXPECT_EQ(second, std::vector<double>(5000, 3.75));
}

// Random bits are numbers of every kind; of a NaN it only counts that it is one.
template <typename T>
void expect_kernels_agree(DType dtype, Reduction reduction, int sources, std::int64_t count) {
  std::mt19937_64 generator(static_cast<std::uint64_t>(sources * 7919 + count));
  std::vector<std::vector<T>> data(static_cast<std::size_t>(sources),
                                   std::vector<T>(static_cast<std::size_t>(count)));
  std::vector<const void*> pointers;
  for (auto& one : data) {
    for (T& value : one) value = std::bit_cast<T>(static_cast<BitsOf<T>>(generator()));
    pointers.push_back(one.data());
  }
  std::vector<T> baseline(data[0].size());
  std::vector<T> chosen = data.back();
  pointers.back() = chosen.data();  // in place
  const std::int64_t divisor = reduction == Reduction::average ? sources : 1;
  find_kernel(dtype, reduction)({.data = pointers.data(), .count = sources}, chosen.data(), count, divisor);
  pointers.back() = data.back().data();
  find_baseline_kernel(dtype, reduction)({.data = pointers.data(), .count = sources}, baseline.data(), count,
                                         divisor);
  for (std::size_t i = 0; i < baseline.size(); ++i) {
    if (is_nan(baseline[i])) {
      ASSERT_TRUE(is_nan(chosen[i]));
    } else {
      ASSERT_EQ(std::bit_cast<BitsOf<T>>(baseline[i]), std::bit_cast<BitsOf<T>>(chosen[i]))
          << name_of(dtype) << ' ' << name_of(reduction) << ' ' << sources << " sources, element " << i;
    }
  }
}

TEST(Reduce, GivesTheSameBitsOnEveryProcessor) {
  for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::max, Reduction::min}) {
    for (const int sources : {1, 2, 3, 4, 5, 8, 9, 13}) {
      for (const std::int64_t count : {1, 7, 8, 15, 16, 31, 2048, 4103}) {
        expect_kernels_agree<float>(DType::f32, reduction, sources, count);
        expect_kernels_agree<double>(DType::f64, reduction, sources, count);
        expect_kernels_agree<Half>(DType::f16, reduction, sources, count);
        expect_kernels_agree<BFloat16>(DType::bf16, reduction, sources, count);
        expect_kernels_agree<std::int32_t>(DType::i32, reduction, sources, count);
        expect_kernels_agree<std::int64_t>(DType::i64, reduction, sources, count);
      }
    }
  }
  for (const int sources : {1, 3, 5, 9}) {
    for (const std::int64_t count : {1, 31, 32, 4103}) {
      expect_kernels_agree<std::uint8_t>(DType::u8, Reduction::bitwise_or, sources, count);
      expect_kernels_agree<std::int32_t>(DType::i32, Reduction::bitwise_or, sources, count);
      expect_kernels_agree<std::int64_t>(DType::i64, Reduction::bitwise_or, sources, count);
    }
  }
}

TEST(Reduce, ComparesBytesAndDoesNotAddThem) {
  EXPECT_EQ(reduced<std::uint8_t>(DType::u8, Reduction::max, {{1, 200}, {2, 100}}),
            (std::vector<std::uint8_t>{2, 200}));
  EXPECT_EQ(reduced<std::uint8_t>(DType::u8, Reduction::min, {{1, 200}, {2, 100}}),
            (std::vector<std::uint8_t>{1, 100}));
  EXPECT_THROW(reduced<std::uint8_t>(DType::u8, Reduction::sum, {{1}, {2}}), ConfigError);
}

TEST(Reduce, CombinesTheBitsOfIntegers) {
  EXPECT_EQ(reduced<std::uint8_t>(DType::u8, Reduction::bitwise_or, {{1, 128}, {2, 128}, {1, 64}}),
            (std::vector<std::uint8_t>{3, 192}));
  constexpr auto kLeast = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(reduced<std::int32_t>(DType::i32, Reduction::bitwise_or, {{kLeast, -2}, {5, 1}}),
            (std::vector<std::int32_t>{kLeast + 5, -1}));
  EXPECT_EQ(reduced<std::int64_t>(DType::i64, Reduction::bitwise_or, {{std::int64_t{1} << 62}, {1}}),
            (std::vector<std::int64_t>{(std::int64_t{1} << 62) + 1}));
  EXPECT_THROW(reduced<float>(DType::f32, Reduction::bitwise_or, {{1}, {2}}), ConfigError);
}

}  // namespace
}  // namespace dear::comm::reduce_test
