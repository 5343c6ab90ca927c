#pragma once

#include <cstdint>
#include <optional>

#include "dear/base/vocabulary/dtype.h"
#include "dear/workload/layers/workload.h"
#include "dear/workload/zoo/device.h"
#include "dear/workload/zoo/models.h"

namespace dear::zoo {

struct WorkloadOptions {
  std::int64_t batch = 0;        // samples on one rank; 0: the model's own
  std::int64_t size = 0;         // of a sample (Model::size); 0: the model's own
  std::optional<DType> dtype{};  // of parameters, gradients and activations; else usual_dtype()
  int optimizer_states = 1;      // of the update, as sim::memory_of() counts them
  // Seconds of an iteration measured on this device with this batch, size and type: forward, backward and
  // update.
  std::optional<double> iteration_seconds = {};
  double forward_share = 1.0 / 3;  // of these
};

// In which a model is trained on a device: fp32 where it was measured there, and the type of the device's
// matrix units where the model is trained in half precision.
DType usual_dtype(const Model& model, const Device& device);

// One rank's training of the model on the device. Times are spread over layers, and over forward and
// backward, by the device's roofline, then scaled: to `iteration_seconds`; without it, in fp32 on the device
// where the model was measured, by what that measurement says of the roofline (so that it comes out as
// measured with the model's own batch and size, and in proportion with others); else not at all. The update
// reads gradients, parameters and states, and writes the latter two; of parameters in half precision it reads
// and writes copies in fp32, and writes the parameters. What was measured updated with one state, momentum.
//
// ConfigError for a batch or size that cannot be, a dtype that the device does not train in, an iteration
// that is shorter than its update and forward.
Workload make_workload(const Model& model, const Device& device, const WorkloadOptions& options = {});

}  // namespace dear::zoo
