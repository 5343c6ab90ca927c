// One rank of a job on backend gloo, in a program that links libtorch: adds up tensors, and says "ok".

#include <dlfcn.h>
#include <iostream>

#include <torch/types.h>

#include "dear/comm/backends/init.h"

int main() {
  // The copy of Gloo in libtorch_cpu.so: without it this program would show nothing.
  if (dlsym(RTLD_DEFAULT, "_ZN4gloo7ContextD1Ev") == nullptr) {
    std::cout << "libtorch shows no symbols of Gloo\n";
    return 1;
  }
  try {
    dear::Group group = dear::init({.backend = "gloo"});
    constexpr std::int64_t kCount = 300'000;
    const dear::Buffer buffer = group.allocate(kCount * 4);
    torch::Tensor tensor = torch::from_blob(buffer.data(), {kCount}, torch::kFloat32);
    tensor.copy_(torch::arange(kCount) * (group.rank() + 1));
    group.all_reduce({.buffer = buffer, .count = kCount}, dear::Reduction::sum).wait();
    const int all = group.size() * (group.size() + 1) / 2;
    const bool right = torch::equal(tensor, (torch::arange(kCount) * all).to(torch::kFloat32));
    std::cout << (right ? "ok" : "wrong sums") << "\n";
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 1;
  }
}
