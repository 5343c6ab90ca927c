#include "dear/train/optim/exact_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "dear/base/vocabulary/error.h"

namespace dear {

void ExactSum::add(double term) {
  constexpr int kMantissaBits = 52, kBias = 1075;
  const auto bits = std::bit_cast<std::uint64_t>(term);
  const int exponent = static_cast<int>(bits >> kMantissaBits);
  const int position = exponent - kBias + kBitsBelowOne;  // of the mantissa's last bit
  if (position >= kBitsOfDigit * (kDigits - 2)) {
    not_finite_ += std::isnan(term) ? term : std::numeric_limits<double>::infinity();
    return;
  }
  std::uint64_t mantissa =
      (bits & ((std::uint64_t{1} << kMantissaBits) - 1)) | (std::uint64_t{exponent != 0} << kMantissaBits);
  if (position <= -64) return;
  if (position < 0) mantissa >>= -position;
  const int at = position < 0 ? 0 : position / kBitsOfDigit;
  const int shift = position < 0 ? 0 : position % kBitsOfDigit;
  constexpr std::uint64_t kDigit = 0xffffffff;
  const std::uint64_t low = (mantissa & kDigit) << shift;
  const std::uint64_t high = (mantissa >> kBitsOfDigit) << shift;
  digits_[at] += static_cast<std::int64_t>(low & kDigit);
  digits_[at + 1] += static_cast<std::int64_t>((low >> kBitsOfDigit) + (high & kDigit));
  digits_[at + 2] += static_cast<std::int64_t>(high >> kBitsOfDigit);
}

void ExactSum::add(const ExactSum& other) {
  for (int i = 0; i < kDigits; ++i) digits_[i] += other.digits_[i];
  not_finite_ += other.not_finite_;
}

double ExactSum::value() const {
  if (not_finite_ != 0) return not_finite_;
  std::array<std::int64_t, kDigits> digits = digits_;
  for (int i = 0; i + 1 < kDigits; ++i) {
    digits[i + 1] += digits[i] >> kBitsOfDigit;
    digits[i] &= 0xffffffff;
  }
  double value = 0;
  for (int i = kDigits; i-- > 0;) value = std::ldexp(value, kBitsOfDigit) + static_cast<double>(digits[i]);
  return std::ldexp(value, -kBitsBelowOne);
}

namespace {

template <typename T>
constexpr int kBlock = sizeof(T) == sizeof(double) ? 8 : 16;

// The sum of the squares of a block, the upper half added to the lower one until one is left. The last three
// additions are written out: as loops they go through memory, and take twice as long.
template <typename T>
double squares_of_block(const T* values) {
  std::array<double, 8> t;
  for (int k = 0; k < 8; ++k) {
    const auto a = static_cast<double>(values[k]);
    t[k] = a * a;
    if constexpr (kBlock<T> == 16) {
      const auto b = static_cast<double>(values[k + 8]);
      t[k] += b * b;
    }
  }
  const double a = t[0] + t[4], b = t[1] + t[5], c = t[2] + t[6], d = t[3] + t[7];
  return (a + c) + (b + d);
}

template <typename T>
ExactSum squares(const T* values, std::int64_t count) {
  ExactSum sum;
  std::int64_t i = 0;
  for (; i + kBlock<T> <= count; i += kBlock<T>) sum.add(squares_of_block(values + i));
  if (i == count) return sum;
  std::array<T, kBlock<T>> last{};
  std::copy(values + i, values + count, last.begin());
  sum.add(squares_of_block(last.data()));
  return sum;
}

}  // namespace

ExactSum sum_of_squares(const torch::Tensor& tensor) {
  if (!tensor.device().is_cpu()) throw ConfigError("the squares of a tensor on another device than the CPU");
  const torch::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  switch (dense.scalar_type()) {
    case at::kFloat:
      return squares(dense.const_data_ptr<float>(), dense.numel());
    case at::kDouble:
      return squares(dense.const_data_ptr<double>(), dense.numel());
    case at::kHalf:
      return squares(dense.const_data_ptr<at::Half>(), dense.numel());
    case at::kBFloat16:
      return squares(dense.const_data_ptr<at::BFloat16>(), dense.numel());
    default:
      throw ConfigError("a norm of a tensor that is not of fp32, fp64, fp16 or bf16");
  }
}

}  // namespace dear
