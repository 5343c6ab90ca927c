#include "dear/schedule/codec/kernels.h"

#include <algorithm>
#include <array>

namespace dear::codec {

const Kernels& kernels() {
#if defined(__x86_64__)
  // Every processor with AVX2 has F16C, which not every compiler can be asked about.
  static const bool kFast = __builtin_cpu_supports("avx2") != 0;
  if (kFast && avx2_kernels() != nullptr) {
    return *avx2_kernels();
  }
#endif
  return baseline_kernels();
}

bool all_finite(std::span<const float> values) {
  constexpr std::size_t kPart = 4096;  // whose bits stay in the first-level cache
  std::array<std::uint64_t, kPart / 64> bits;
  for (std::size_t begin = 0; begin < values.size(); begin += kPart) {
    const auto part = values.subspan(begin, std::min(kPart, values.size() - begin));
    if (kernels().scan(part.data(), std::ssize(part), bits.data()) >= kInfinityBits) return false;
  }
  return true;
}

}  // namespace dear::codec
