// Included once by each source that is compiled for one set of instructions; everything here is local to it.

#include "dear/schedule/codec/hash.h"

namespace dear::codec {
namespace {

void groups_of(const KeyHash& hash, const std::uint32_t* keys, std::int64_t count, std::uint32_t groups,
               std::uint16_t* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::uint16_t>(hash.group(keys[i], groups));
}

void rows_of(const KeyHash& hash, const std::uint32_t* keys, std::int64_t count, std::uint32_t range,
             PackedRows* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = packed(hash.row(0, keys[i], range), hash.row(1, keys[i], range), hash.row(2, keys[i], range));
  }
}

constexpr HashKernels kKernels = {.groups = groups_of, .rows = rows_of};

}  // namespace
}  // namespace dear::codec
