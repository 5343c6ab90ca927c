#include "dear/comm/group/reduce_kernels.inl"

namespace dear::comm {

ReduceKernel find_baseline_kernel(DType dtype, Reduction reduction) { return find(dtype, reduction); }

}  // namespace dear::comm
