#include "dear/schedule/codec/kernels.h"

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

}  // namespace dear::codec
