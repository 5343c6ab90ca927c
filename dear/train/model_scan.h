#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "dear/collective/group.h"

namespace dear::train {

// A parameter that is trained, once, however many modules share it.
struct TrainedParameter {
  std::string name;    // the first under which the model registers it
  std::string module;  // that of the module which owns it; "" for the root
  torch::Tensor tensor;
  std::uint32_t rule = 0;  // index of its parameter group in the optimiser
};

struct ModelScan {
  std::vector<TrainedParameter> trained;  // in order of registration
  std::vector<torch::Tensor> frozen;      // parameters that do not require a gradient
  std::vector<torch::Tensor> buffers;
};

// ConfigError naming the parameter: trained but in no group of the optimiser; of a dtype or layout that
// buckets do not carry; sharing memory with another without being the same tensor; not on the CPU.
ModelScan scan(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);

// MismatchError on every rank, naming the first tensor in which a rank's model differs from rank 0's, or what
// differs of their optimisers.
void require_alike(const Group& group, const torch::nn::Module& model,
                   const torch::optim::Optimizer& optimizer, const ModelScan& scanned);

}  // namespace dear::train
