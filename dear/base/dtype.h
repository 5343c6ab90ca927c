#pragma once

#include <cstdint>
#include <string_view>

namespace dear {

// Element types that travel in buckets. u8 is moved, and compared by max and min, never averaged.
enum class DType : std::uint8_t { f32, f64, f16, bf16, i32, i64, u8 };

std::int64_t size_of(DType dtype);         // bytes of one element
std::string_view name_of(DType dtype);     // "fp32", "fp64", "fp16", "bf16", "int32", "int64", "uint8"
DType parse_dtype(std::string_view name);  // ConfigError for any other name

}  // namespace dear
