#pragma once

#include <cstdint>
#include <span>

// The search for what is not zero, compiled once for each set of processor instructions, with the same
// result.
namespace dear::codec {

// Sets bit i of `bits` where values[i] is not zero (-0.0 is zero, a denormal is not), and clears it
// elsewhere, in the ceil(count / 64) words of `bits`. Returns the bits of the largest magnitude, which are
// ordered as magnitudes are, with those of infinity and of NaN above all numbers.
using ScanKernel = std::uint32_t (*)(const float* values, std::int64_t count, std::uint64_t* bits);

ScanKernel find_baseline_scan();
ScanKernel find_avx2_scan();  // nullptr where the compiler has no AVX2
ScanKernel find_scan();       // what this processor runs fastest

bool all_finite(std::span<const float> values);

inline constexpr std::uint32_t kInfinityBits = 0x7f800000U;

}  // namespace dear::codec
