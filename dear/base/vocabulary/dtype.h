#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dear {

// Types of the elements of a vector. u8 can be moved, and reduced by max, min and bitwise or, but not be
// added up.
enum class DType : std::uint8_t { f32, f64, f16, bf16, i32, i64, u8 };

// Bytes of one element, a power of two.
constexpr std::int64_t size_of(DType dtype) {
  constexpr std::array<std::int8_t, 7> kBytes = {4, 8, 2, 2, 4, 8, 1};
  return kBytes.at(static_cast<std::size_t>(dtype));
}
std::string_view name_of(DType dtype);     // "fp32", "fp64", "fp16", "bf16", "int32", "int64", "uint8"
DType parse_dtype(std::string_view name);  // ConfigError for any other name

}  // namespace dear
