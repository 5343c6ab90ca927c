// This source is compiled with AVX2 and F16C where the compiler has them.
#include "dear/comm/group/reduce_kernels.inl"

namespace dear::comm {

#if defined(__F16C__) && defined(__AVX2__)
ReduceKernel find_avx2_kernel(DType dtype, Reduction reduction) { return find(dtype, reduction); }
#else
ReduceKernel find_avx2_kernel(DType /*dtype*/, Reduction /*reduction*/) { return nullptr; }
#endif

}  // namespace dear::comm
