#include "dear/schedule/codec/hash_kernels.inl"

namespace dear::codec {

const HashKernels* find_baseline_hash() { return &kKernels; }

const HashKernels* find_hash() {
#if defined(__x86_64__)
  static const bool kFast = __builtin_cpu_supports("avx2") != 0;
#else
  constexpr bool kFast = false;
#endif
  const HashKernels* const fast = kFast ? find_avx2_hash() : nullptr;
  return fast != nullptr ? fast : &kKernels;
}

}  // namespace dear::codec
