// Every rank contributes its number; all get the sum.
//
//   dear launch -n 4 ./all_reduce       four ranks on this host
//   mpirun -n 4 ./all_reduce            or as MPI starts them
#include <cstdio>
#include <dear/comm/backends/init.h>
#include <exception>

int main() {
  try {
    dear::Group group = dear::init();  // from the launcher's environment
    constexpr std::int64_t kCount = 1'000'000;
    dear::Buffer buffer = group.allocate(kCount * 4);
    auto* values = reinterpret_cast<float*>(buffer.data());
    for (std::int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(group.rank());

    dear::Pending sum = group.all_reduce({.buffer = buffer, .count = kCount}, dear::Reduction::sum);
    // ... compute something else meanwhile ...
    sum.wait();
    std::printf("rank %d of %d on %s: %g\n", group.rank(), group.size(), group.description().c_str(),
                values[0]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "all_reduce: %s\n", error.what());
    return 1;
  }
}
