#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/script.h>

#include "dear/systems/train_command/model_input.h"

namespace dear::train_command {

// A TorchScript module from a file that DataParallel can train: module() is a tree of torch::nn::Module that
// registers the same tensors under the same names as the submodules of the script. One thread uses it.
class ScriptedModel {
 public:
  // Loads the module onto the CPU, in training mode. ConfigError when the file holds no module, or nothing of
  // it can be trained.
  explicit ScriptedModel(std::string path);

  // Tensors for forward: floating-point numbers are normal, integers are drawn from [0, range). ConfigError
  // when forward takes fewer or more inputs, or something else than a tensor.
  [[nodiscard]] std::vector<torch::Tensor> random_inputs(const std::vector<ModelInput>& inputs,
                                                         std::int64_t range) const;

  // Runs forward, and returns the outputs that have a gradient, also those in tuples, lists and dicts.
  // ConfigError with libtorch's reason when forward refuses its inputs, and when no output has a gradient.
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs);

  [[nodiscard]] torch::nn::Module& module() { return *mirror_; }
  // The parameters that are trained, each once.
  [[nodiscard]] std::vector<torch::Tensor> trained() const;
  [[nodiscard]] std::vector<torch::Tensor> frozen() const;  // those that require no gradient

 private:
  std::string path_;
  torch::jit::Module script_;
  std::shared_ptr<torch::nn::Module> mirror_;
};

// The reason in libtorch's message, as one line, without the stacks of C++ and of the script.
std::string reason_of(const std::exception& error);

}  // namespace dear::train_command
