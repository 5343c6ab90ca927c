#include "dear/schedule/codec/kernels.inl"

namespace dear::codec {

const Kernels& baseline_kernels() {
  static constexpr Kernels kKernels = kernels_of_this_source();
  return kKernels;
}

}  // namespace dear::codec
