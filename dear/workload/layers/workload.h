#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/ids.h"

namespace dear {

// One parameter that is trained. Frozen parameters do not appear in a workload: nothing of them travels.
struct Tensor {
  std::string name;
  std::int64_t elements = 0;
  DType dtype = DType::f32;

  [[nodiscard]] std::int64_t bytes() const { return elements * size_of(dtype); }
};

// A module with parameters of its own, and the time that it takes on one rank.
struct Layer {
  std::string name;
  std::vector<TensorId> tensors;  // those its forward reads; a tied tensor stands in several layers
  double forward_seconds = 0;
  double backward_seconds = 0;
  std::int64_t activation_bytes = 0;  // what its forward keeps for its backward, on one rank; 0: not known
};

// Layers, tensors and times of one training job: what fusion, policies and the simulator need to know of a
// model. Layers stand in forward order; tensors in the order in which layers first use them.
struct Workload {
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<Layer> layers;
  double update_seconds = 0;  // the optimiser's time to update every parameter on one rank
  // The bytes of state that is not trained and that replicas keep alike, such as running means.
  std::int64_t buffer_bytes = 0;
  std::int64_t buffers = 0;  // of how many tensors that state is; 0: not known
  // The device of the times: "a100" as the table of devices names it, or "cpu, 4 threads"; the name
  // ends at a comma. Empty: not known.
  std::string device{};

  [[nodiscard]] std::int64_t bytes() const;       // of all tensors, each once
  [[nodiscard]] double forward_seconds() const;   // f
  [[nodiscard]] double backward_seconds() const;  // b
};

// This is what a workload that was measured on a CPU says of its device.
std::string cpu_device(int threads);
// "cpu" of "cpu, 4 threads".
std::string_view device_name(std::string_view device);

// ConfigError naming the offending layer or tensor unless: there is a layer; names are not empty; every
// tensor is positive in size and used by some layer; tensors are numbered by first use; times are finite and
// not negative; bytes are not negative and below 2^63 in all.
void validate(const Workload& workload);

}  // namespace dear
