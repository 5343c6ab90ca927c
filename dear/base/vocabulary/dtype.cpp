#include "dear/base/vocabulary/dtype.h"

#include <array>
#include <string>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
};

constexpr std::array<Entry, 7> kEntries{{{DType::f32, "fp32"},
                                         {DType::f64, "fp64"},
                                         {DType::f16, "fp16"},
                                         {DType::bf16, "bf16"},
                                         {DType::i32, "int32"},
                                         {DType::i64, "int64"},
                                         {DType::u8, "uint8"}}};

}  // namespace

std::string_view name_of(DType dtype) { return kEntries.at(static_cast<std::size_t>(dtype)).name; }

DType parse_dtype(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  throw ConfigError("unknown dtype '" + std::string(name) +
                    "': use fp32, fp64, fp16, bf16, int32, int64 or uint8");
}

}  // namespace dear
