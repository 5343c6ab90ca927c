// The entry of libFuzzer to the target DEAR_FUZZ_TARGET.

#include "tests/fuzz/target.h"
#include "tests/readers/mutator.h"
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace dear::fuzz {

void DEAR_FUZZ_TARGET(std::string_view bytes);

}  // namespace dear::fuzz

extern "C" {

std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    dear::fuzz::run(dear::fuzz::DEAR_FUZZ_TARGET, {reinterpret_cast<const char*>(data), size});
  } catch (const dear::fuzz::Broken& broken) {
    std::fprintf(stderr, "broken: %s\n", broken.what());
    std::abort();
  }
  return 0;
}

#ifdef DEAR_FUZZ_JSON
// One in eight has mistakes in a value, a name or a number.
std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  if (seed % 8 != 0) return LLVMFuzzerMutate(data, size, most);
  dear::readers_test::Mutator mutator(seed);
  const std::string mutant = mutator.mutant_of(std::string(reinterpret_cast<const char*>(data), size), true);
  if (mutant.empty() || mutant.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, mutant.data(), mutant.size());
  return mutant.size();
}
#endif

// The hooks of comparisons stand before libFuzzer's (--wrap of the linker). libFuzzer makes use of numbers of
// four and eight bytes alone, but spends a quarter of the time of a reader of text on all; nor do numbers
// below 256 help it, which a byte of an input hits anyway.
#define DEAR_FUZZ_UNUSED(hook, Number) \
  __attribute__((no_sanitize("all", "coverage"))) void __wrap___sanitizer_cov_trace_##hook(Number, Number) {}
#define DEAR_FUZZ_LARGE(hook, Number)                                                                  \
  void __real___sanitizer_cov_trace_##hook(Number, Number);                                            \
  __attribute__((no_sanitize("all", "coverage"))) void __wrap___sanitizer_cov_trace_##hook(Number a,   \
                                                                                           Number b) { \
    if (a > 255 && b > 255 && a != b) __real___sanitizer_cov_trace_##hook(a, b);                       \
  }
DEAR_FUZZ_UNUSED(cmp1, std::uint8_t)
DEAR_FUZZ_UNUSED(cmp2, std::uint16_t)
DEAR_FUZZ_UNUSED(const_cmp1, std::uint8_t)
DEAR_FUZZ_UNUSED(const_cmp2, std::uint16_t)
DEAR_FUZZ_LARGE(cmp4, std::uint32_t)
DEAR_FUZZ_LARGE(cmp8, std::uint64_t)
DEAR_FUZZ_LARGE(const_cmp4, std::uint32_t)
DEAR_FUZZ_LARGE(const_cmp8, std::uint64_t)

}  // extern "C"
