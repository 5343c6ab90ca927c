#pragma once

#include <ATen/core/Generator.h>

// Random numbers of the device. As on a GPU, an operator draws from a place that is fixed when it is
// enqueued: each gets a generator of its own, whose seed the device's generator gives. So numbers do not
// depend on when a stream runs.
namespace dear::stub_device {

[[nodiscard]] const at::Generator& default_generator(int device);
[[nodiscard]] at::Generator new_generator(int device);
[[nodiscard]] at::Generator new_cpu_generator();

// For one operator on a device: a generator of the CPU, from `given`, or the device's own where that is not
// defined.
[[nodiscard]] at::Generator drawn(const at::Generator& given, int device);

}  // namespace dear::stub_device
