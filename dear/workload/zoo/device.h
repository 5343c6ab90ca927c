#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/workload/zoo/architecture.h"

namespace dear::zoo {

// Peak operations a second in one type, and the part of them that kernels reach.
struct Arithmetic {
  double flops_per_second = 0;
  double convolution_efficiency = 0;
  double matmul_efficiency = 0;
};

// One accelerator as a roofline (Williams et al. 2009, doi:10.1145/1498765.1498785). A kernel takes as long
// as its operations or its transfers, whichever is longer, after a launch. That is meant to say how time
// spreads over the layers of a model; of how long an iteration takes it gives an idea. Where that was
// measured, let make_workload scale to it.
struct Device {
  std::string_view name;
  std::string_view summary;
  std::string_view source;        // of peaks; efficiencies and launches are ours
  Arithmetic single;              // fp32, without shortened mantissas
  Arithmetic half;                // fp16 and bf16 on matrix units, sums in fp32
  DType half_type = DType::bf16;  // the one of these in which it trains fast
  double bytes_per_second = 0;
  double memory_efficiency = 0.8;
  double launch_seconds = 5e-6;  // of a kernel
  std::int64_t memory_bytes = 0;
};

// Seconds of kernels one after the other on a batch of samples. ConfigError where the device does not train
// in `dtype`.
double seconds(const Device& device, const std::vector<Kernel>& kernels, std::int64_t batch, DType dtype);

// Seconds of one kernel that moves so many bytes.
double transfer_seconds(const Device& device, double bytes);

const std::vector<Device>& devices();
const Device& find_device(std::string_view name);  // ConfigError that lists them all

}  // namespace dear::zoo
