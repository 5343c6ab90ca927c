#include "dear/systems/train_command/model_input.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"

namespace dear::train_command {
namespace {

// Far above what fits into memory, and low enough that bytes stay within 64 bits.
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

}  // namespace

const std::vector<std::string_view>& input_dtypes() {
  static const std::vector<std::string_view> kNames = {"float32", "float64", "float16", "bfloat16",
                                                       "int64",   "int32",   "uint8",   "bool"};
  return kNames;
}

ModelInput parse_model_input(const std::string& text) {
  const std::size_t colon = text.find(':');
  ModelInput input{.text = text, .sizes = {}, .dtype = std::string(input_dtypes().front())};
  if (colon != std::string::npos) input.dtype = text.substr(colon + 1);
  const auto& dtypes = input_dtypes();
  if (std::find(dtypes.begin(), dtypes.end(), input.dtype) == dtypes.end()) {
    throw ConfigError(fmt::format("'{}': there is no type '{}'; choose one of {}", text, input.dtype,
                                  fmt::join(dtypes, ", ")));
  }
  const char* at = text.data();
  const char* const end = at + std::min(colon, text.size());
  std::int64_t elements = 1;
  while (true) {
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    const bool stops_well = next == end || (*next == 'x' && next + 1 != end);
    if (error == std::errc::invalid_argument || !stops_well || size < 0) {
      throw ConfigError(
          fmt::format("'{}' is no shape: write sizes with x between them and, where it is not float32, a "
                      "type, such as 8x3x224x224 or 8x64:int64",
                      text));
    }
    if (error != std::errc() || size == 0 || size > kMostElements / elements) {
      throw ConfigError(
          fmt::format("'{}' has {} elements: every size must be at least 1, and their product below 2^48",
                      text, size == 0 && error == std::errc() ? "no" : "too many"));
    }
    elements *= size;
    input.sizes.push_back(size);
    if (next == end) return input;
    at = next + 1;
  }
}

}  // namespace dear::train_command
