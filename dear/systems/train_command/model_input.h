#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dear::train_command {

// A tensor that a model's forward takes.
struct ModelInput {
  std::string text;                 // as it was written
  std::vector<std::int64_t> sizes;  // all at least 1
  std::string dtype;                // one of input_dtypes()

  bool operator==(const ModelInput&) const = default;
};

// The dtypes of inputs by their names in libtorch: float32 (the default), float64, float16, bfloat16, int64,
// int32, uint8, bool.
const std::vector<std::string_view>& input_dtypes();

// Reads an input such as "8x3x224x224" or "8x64:int64". ConfigError that names what is wrong.
ModelInput parse_model_input(const std::string& text);

}  // namespace dear::train_command
