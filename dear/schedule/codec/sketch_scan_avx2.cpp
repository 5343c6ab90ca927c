// This source is compiled with AVX2 where the compiler has it.
#include "dear/schedule/codec/sketch_scan.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dear::codec {

#if defined(__AVX2__)
namespace {

std::uint32_t scan_by_eight(const float* values, std::int64_t count, std::uint64_t* bits) {
  const __m256i without_sign = _mm256_set1_epi32(0x7fffffff);
  const __m256i zero = _mm256_setzero_si256();
  __m256i most = zero;
  std::int64_t begin = 0;
  for (; begin + 64 <= count; begin += 64) {
    std::uint64_t word = 0;
    for (int part = 0; part < 8; ++part) {
      const __m256i loaded = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + begin + 8 * part));
      const __m256i magnitude = _mm256_and_si256(loaded, without_sign);
      most = _mm256_max_epi32(most, magnitude);
      const int some = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(magnitude, zero)));
      word |= static_cast<std::uint64_t>(static_cast<unsigned>(some)) << (8 * part);
    }
    bits[begin / 64] = word;
  }
  alignas(32) std::uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), most);
  std::uint32_t largest = 0;
  for (const std::uint32_t lane : lanes) largest = lane > largest ? lane : largest;
  if (begin < count) {
    const std::uint32_t rest = find_baseline_scan()(values + begin, count - begin, bits + begin / 64);
    largest = rest > largest ? rest : largest;
  }
  return largest;
}

}  // namespace

ScanKernel find_avx2_scan() { return scan_by_eight; }
#else
ScanKernel find_avx2_scan() { return nullptr; }
#endif

}  // namespace dear::codec
