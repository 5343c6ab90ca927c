#include "dear/schedule/codec/sketch_scan.h"

#include <algorithm>
#include <array>
#include <bit>

namespace dear::codec {
namespace {

std::uint32_t scan(const float* values, std::int64_t count, std::uint64_t* bits) {
  std::uint32_t largest = 0;
  for (std::int64_t begin = 0; begin < count; begin += 64) {
    const auto length = std::min<std::int64_t>(64, count - begin);
    std::uint64_t word = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values[begin + i]) & 0x7fffffffU;
      largest = std::max(largest, magnitude);
      word |= std::uint64_t{magnitude != 0} << i;
    }
    bits[begin / 64] = word;
  }
  return largest;
}

}  // namespace

ScanKernel find_baseline_scan() { return scan; }

ScanKernel find_scan() {
#if defined(__x86_64__)
  static const bool kFast = __builtin_cpu_supports("avx2") != 0;
#else
  constexpr bool kFast = false;
#endif
  const ScanKernel fast = kFast ? find_avx2_scan() : nullptr;
  return fast != nullptr ? fast : scan;
}

bool all_finite(std::span<const float> values) {
  static const ScanKernel kScan = find_scan();
  constexpr std::size_t kPart = 4096;  // whose bits stay in the first-level cache
  std::array<std::uint64_t, kPart / 64> bits;
  for (std::size_t begin = 0; begin < values.size(); begin += kPart) {
    const auto part = values.subspan(begin, std::min(kPart, values.size() - begin));
    if (kScan(part.data(), std::ssize(part), bits.data()) >= kInfinityBits) return false;
  }
  return true;
}

}  // namespace dear::codec
