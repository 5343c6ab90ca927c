#pragma once

#include <array>
#include <optional>
#include <utility>

#include <torch/types.h>

#include "dear/base/vocabulary/dtype.h"

namespace dear::process_group {

inline constexpr std::array<std::pair<at::ScalarType, DType>, 7> kTypes{{{at::kFloat, DType::f32},
                                                                         {at::kDouble, DType::f64},
                                                                         {at::kHalf, DType::f16},
                                                                         {at::kBFloat16, DType::bf16},
                                                                         {at::kInt, DType::i32},
                                                                         {at::kLong, DType::i64},
                                                                         {at::kByte, DType::u8}}};

// Empty for a type that no bucket carries.
inline std::optional<DType> dtype_of(at::ScalarType type) {
  for (const auto& [theirs, ours] : kTypes)
    if (theirs == type) return ours;
  return std::nullopt;
}

inline at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [theirs, ours] : kTypes)
    if (ours == dtype) return theirs;
  return at::kByte;
}

}  // namespace dear::process_group
