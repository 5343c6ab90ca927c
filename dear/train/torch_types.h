#pragma once

#include <optional>

#include <torch/types.h>

#include "dear/base/dtype.h"

namespace dear::train {

// Empty for a type that no bucket carries.
inline std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::f32;
    case at::kDouble:
      return DType::f64;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kInt:
      return DType::i32;
    case at::kLong:
      return DType::i64;
    case at::kByte:
      return DType::u8;
    default:
      return std::nullopt;
  }
}

inline at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return at::kFloat;
    case DType::f64:
      return at::kDouble;
    case DType::f16:
      return at::kHalf;
    case DType::bf16:
      return at::kBFloat16;
    case DType::i32:
      return at::kInt;
    case DType::i64:
      return at::kLong;
    case DType::u8:
      break;
  }
  return at::kByte;
}

}  // namespace dear::train
