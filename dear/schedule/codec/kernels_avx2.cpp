// This source is compiled with AVX2 and F16C where the compiler has them.
#include "dear/schedule/codec/kernels.inl"

namespace dear::codec {

#if defined(__F16C__) && defined(__AVX2__)
const Kernels* avx2_kernels() {
  static constexpr Kernels kKernels = kernels_of_this_source();
  return &kKernels;
}
#else
const Kernels* avx2_kernels() { return nullptr; }
#endif

}  // namespace dear::codec
