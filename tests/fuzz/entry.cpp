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

}  // extern "C"
