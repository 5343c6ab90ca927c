// This source is compiled with AVX2 where the compiler has it.
#include "dear/schedule/codec/hash_kernels.inl"

namespace dear::codec {

#if defined(__AVX2__)
const HashKernels* find_avx2_hash() { return &kKernels; }
#else
const HashKernels* find_avx2_hash() { return nullptr; }
#endif

}  // namespace dear::codec
