#include "dear/comm/group/reduce.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/reduce_kernels.h"

namespace dear::comm {
namespace {

bool has_avx2_and_f16c() {
#if defined(__x86_64__)
  // Every processor with AVX2 has F16C, which not every compiler can be asked about.
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

}  // namespace

ReduceKernel find_kernel(DType dtype, Reduction reduction) {
  static const bool kFast = has_avx2_and_f16c();
  const ReduceKernel kernel = kFast ? find_avx2_kernel(dtype, reduction) : nullptr;
  return kernel != nullptr ? kernel : find_baseline_kernel(dtype, reduction);
}

void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources, std::byte* out,
            std::int64_t count) {
  if (count == 0) {
    return;
  }
  const ReduceKernel kernel = find_kernel(dtype, reduction);
  if (kernel == nullptr) {
    throw ConfigError(
        fmt::format("{} of {}: {}", name_of(reduction), name_of(dtype), obstacle_to(dtype, reduction)));
  }
  // A pointer to bytes and a pointer to void are alike in memory, by the standard.
  kernel({.data = reinterpret_cast<const void* const*>(sources.data()),
          .count = static_cast<int>(sources.size())},
         out, count, reduction == Reduction::average ? static_cast<std::int64_t>(sources.size()) : 1);
}

}  // namespace dear::comm
