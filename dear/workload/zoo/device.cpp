#include "dear/workload/zoo/device.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"

namespace dear::zoo {
namespace {

const Arithmetic& arithmetic_of(const Device& device, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return device.single;
    case DType::f16:
    case DType::bf16:
      return device.half;
    default:
      throw ConfigError(fmt::format("nothing is known of training in {} on '{}': choose fp32, fp16 or bf16",
                                    name_of(dtype), device.name));
  }
}

double arithmetic_seconds(const Arithmetic& arithmetic, Kind kind, double flops) {
  const double efficiency =
      kind == Kind::convolution ? arithmetic.convolution_efficiency : arithmetic.matmul_efficiency;
  return flops / (arithmetic.flops_per_second * efficiency);
}

// Round numbers. With those for fp32, memory and launches the five iterations that arXiv 2302.12445 measured
// on an RTX 2080 Ti come out within 15 %. Those for matrix units are assumed: lower, for such units wait for
// memory more often.
constexpr Arithmetic plain(double flops_per_second) {
  return {.flops_per_second = flops_per_second, .convolution_efficiency = 0.75, .matmul_efficiency = 0.8};
}

constexpr Arithmetic matrix(double flops_per_second) {
  return {.flops_per_second = flops_per_second, .convolution_efficiency = 0.45, .matmul_efficiency = 0.6};
}

}  // namespace

double transfer_seconds(const Device& device, double bytes) {
  return device.launch_seconds + bytes / (device.bytes_per_second * device.memory_efficiency);
}

double seconds(const Device& device, const std::vector<Kernel>& kernels, std::int64_t batch, DType dtype) {
  const Arithmetic& arithmetic = arithmetic_of(device, dtype);
  const auto samples = static_cast<double>(batch);
  const auto element_bytes = static_cast<double>(size_of(dtype));
  double sum = 0;
  for (const Kernel& kernel : kernels) {
    const double bytes = (kernel.moved * samples + kernel.weights) * element_bytes;
    sum +=
        std::max(device.launch_seconds + arithmetic_seconds(arithmetic, kernel.kind, kernel.flops * samples),
                 transfer_seconds(device, bytes));
  }
  return sum;
}

const std::vector<Device>& devices() {
  static const std::vector<Device> kTable = {
      {.name = "rtx2080ti",
       .summary = "NVIDIA GeForce RTX 2080 Ti, 11 GB, the device of arXiv 2302.12445",
       .source = "NVIDIA Turing GPU Architecture, WP-09183-001; at the reference board's boost clock",
       .single = plain(13.45e12),
       .half = matrix(53.8e12),
       .half_type = DType::f16,
       .bytes_per_second = 616e9,
       .memory_bytes = std::int64_t{11} << 30},
      {.name = "v100",
       .summary = "NVIDIA V100 SXM2, 16 GB",
       .source = "NVIDIA V100 datasheet, 2018",
       .single = plain(15.7e12),
       .half = matrix(125e12),
       .half_type = DType::f16,
       .bytes_per_second = 900e9,
       .memory_bytes = std::int64_t{16} << 30},
      {.name = "a100",
       .summary = "NVIDIA A100 SXM4, 80 GB",
       .source = "NVIDIA A100 80GB datasheet, 2021",
       .single = plain(19.5e12),
       .half = matrix(312e12),
       .bytes_per_second = 2039e9,
       .memory_bytes = std::int64_t{80} << 30},
      {.name = "h100",
       .summary = "NVIDIA H100 SXM5, 80 GB",
       .source = "NVIDIA H100 datasheet, 2023; without sparsity",
       .single = plain(67e12),
       .half = matrix(989e12),
       .bytes_per_second = 3350e9,
       .memory_bytes = std::int64_t{80} << 30},
  };
  return kTable;
}

const Device& find_device(std::string_view name) { return find_named(devices(), name, "device"); }

}  // namespace dear::zoo
