#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// fp16 (IEEE 754 binary16) and bf16 to and from fp32, without branches so that loops over them vectorise, and
// without subnormal fp32 intermediates so that flush-to-zero modes do not change a result. Narrowing rounds
// to nearest even; NaN stays NaN, quiet, with what of its payload fits, as processors do it.
//
// Forced inline: sources compiled for different instructions must not share a copy.
namespace dear {

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

// Returns `yes` where the condition holds, else `no`, by arithmetic that a compiler never turns back into a
// branch.
[[gnu::always_inline]] inline std::uint32_t select_bits(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

[[gnu::always_inline]] inline float widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

[[gnu::always_inline]] inline BFloat16 narrow_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return {static_cast<std::uint16_t>(select_bits(is_nan, quiet_nan, rounded))};
}

// A normal number is re-biased by a multiplication that also carries infinity and NaN over; a subnormal one
// is placed in the mantissa of 0.5 and 0.5 subtracted.
[[gnu::always_inline]] inline float widen(Half value) {
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const float normal = std::bit_cast<float>((magnitude << 13) + (0xe0U << 23)) * 0x1p-112F;
  const float subnormal = std::bit_cast<float>(magnitude | (126U << 23)) - 0.5F;
  return std::bit_cast<float>(sign | select_bits(magnitude < 0x400U, std::bit_cast<std::uint32_t>(subnormal),
                                                 std::bit_cast<std::uint32_t>(normal)));
}

// Adding a power of two whose unit in the last place is that of the result lets the processor round,
// subnormals included; the scaling before turns what does not fit into infinity.
[[gnu::always_inline]] inline Half narrow_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const float scaled = (std::bit_cast<float>(magnitude) * 0x1p+112F) * 0x1p-110F;
  const std::uint32_t exponent = magnitude & 0x7f800000U;
  const std::uint32_t floor = select_bits(exponent < 0x38800000U, 0x38800000U, exponent);
  const float rounded = std::bit_cast<float>(floor + 0x07800000U) + scaled;
  const auto rounded_bits = std::bit_cast<std::uint32_t>(rounded);
  const std::uint32_t number = ((rounded_bits >> 13) & 0x7c00U) + (rounded_bits & 0x0fffU);
  const std::uint32_t quiet_nan = 0x7e00U | ((bits >> 13) & 0x3ffU);
  const bool is_nan = magnitude > 0x7f800000U;
  return {static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | select_bits(is_nan, quiet_nan, number))};
}

}  // namespace dear
