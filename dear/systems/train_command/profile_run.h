#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dear/base/vocabulary/spread.h"
#include "dear/systems/train_command/model_input.h"
#include "dear/workload/layers/workload.h"

namespace dear::train_command {

struct ProfileSettings {
  std::string model;               // a TorchScript file
  std::vector<ModelInput> inputs;  // what its forward takes, in order
  std::int64_t range = 2;          // integer inputs are drawn from [0, range)
  std::uint64_t seed = 1;          // of inputs, gradients and dropout
  std::string optimizer;           // one of optimizers() (optimizers.h)
  std::int64_t warm_up = 3;        // steps that count for nothing; at least 1
  std::int64_t steps = 20;         // at least 1, run twice: as they are, then recorded
  // One of zoo::devices(), whose roofline says how long the counted kernels take there; empty: the times are
  // those measured here.
  std::string device{};
  DType dtype = DType::f32;  // on that device
};

// The measurements of one `dear profile`. Spreads are over steps; the median of a forward or backward pass is
// the figure of the workload (DataParallel::profile()).
struct ModelProfile {
  Workload workload;  // without a name; with the memory that each layer's forward keeps
  double flops = 0;   // of a forward and a backward pass
  Spread forward_seconds, backward_seconds, update_seconds;
  Spread recorded_step_seconds;        // whole steps, while layers were watched
  Spread plain_step_seconds;           // the same without DeAR: what the watching costs is the difference
  std::int64_t frozen_parameters = 0;  // elements that are not trained: no part of the workload
  std::size_t tensors_without_gradient = 0;  // part of the workload, in layers that take no time
};

// Trains the module for a few steps on random inputs, alone, and measures each layer.
//
// There is no loss: the backward pass starts from a random gradient of every output that has one, so that
// the times are the model's and no gradient dies out on its way. The learning rate is 0, so that every step
// computes the same; an optimiser's work does not depend on it.
//
// With a device, the passes run here all the same, so that layers and shapes are the model's, but their
// kernels are counted and take what the device's roofline says; parameters in fp32 become those of `dtype`.
//
// ConfigError for a file that holds no TorchScript, a module that cannot be trained, and inputs that its
// forward does not take; Error for what fails after that.
ModelProfile profile(const ProfileSettings& settings);

}  // namespace dear::train_command
