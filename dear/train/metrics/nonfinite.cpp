#include "dear/train/metrics/nonfinite.h"

#include <algorithm>

namespace dear::metrics {
namespace {

// A number is NaN or infinite where all bits of its exponent are set. Blocks have a constant size, so that a
// compiler compares several elements at once.
template <typename Bits>
NonFinite find(const Bits* values, std::int64_t count, Bits exponent) {
  constexpr std::int64_t kBlock = 2048;
  const auto is_nonfinite = [exponent](Bits bits) { return (bits & exponent) == exponent; };
  NonFinite found;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const Bits* const block = values + begin;
    const std::int64_t size = std::min(kBlock, count - begin);
    if (size == kBlock) {
      Bits any = 0;
      for (std::int64_t i = 0; i < kBlock; ++i)
        any |= static_cast<Bits>(is_nonfinite(block[i]) ? ~Bits{0} : Bits{0});
      if (any == 0) continue;
    }
    for (std::int64_t i = 0; i < size; ++i) {
      if (!is_nonfinite(block[i])) continue;
      if (found.count++ == 0) found.first = begin + i;
    }
  }
  return found;
}

}  // namespace

NonFinite find_nonfinite(const void* data, std::int64_t count, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return find<std::uint32_t>(static_cast<const std::uint32_t*>(data), count, 0x7f80'0000U);
    case DType::f64:
      return find<std::uint64_t>(static_cast<const std::uint64_t*>(data), count, 0x7ff0'0000'0000'0000U);
    case DType::f16:
      return find<std::uint16_t>(static_cast<const std::uint16_t*>(data), count, 0x7c00U);
    case DType::bf16:
      return find<std::uint16_t>(static_cast<const std::uint16_t*>(data), count, 0x7f80U);
    default:
      return {};
  }
}

}  // namespace dear::metrics
