#include "dear/optim/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

#include "dear/base/error.h"

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
ExactSum squares(const T* values, std::int64_t count) {
  constexpr int kBlock = sizeof(T) == sizeof(double) ? 8 : 16;
  ExactSum sum;
  std::array<double, kBlock> terms{};
  const auto add = [&] {
    for (int width = kBlock / 2; width > 0; width /= 2)
      for (int k = 0; k < width; ++k) terms[k] += terms[k + width];
    sum.add(terms[0]);
  };
  std::int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (int k = 0; k < kBlock; ++k) {
      const auto value = static_cast<double>(values[i + k]);
      terms[k] = value * value;
    }
    add();
  }
  if (i == count) return sum;
  terms.fill(0);
  for (int k = 0; i + k < count; ++k) {
    const auto value = static_cast<double>(values[i + k]);
    terms[k] = value * value;
  }
  add();
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
