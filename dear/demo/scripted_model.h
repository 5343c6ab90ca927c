#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/script.h>

#include "dear/demo/model_input.h"

namespace dear::demo {

// A TorchScript module from a file, as something that can be trained: its tree of submodules as a
// torch::nn::Module that registers the very same tensors under the same names, which is what DataParallel
// needs to see. One thread.
class ScriptedModel {
 public:
  // On the CPU, in training mode. ConfigError when the file holds none or nothing of it can be trained.
  explicit ScriptedModel(std::string path);

  // As many tensors as forward takes, of random numbers: normal ones, and integers of [0, range). ConfigError
  // when they are too few or too many, or where forward takes no tensor.
  [[nodiscard]] std::vector<torch::Tensor> random_inputs(const std::vector<ModelInput>& inputs,
                                                         std::int64_t range) const;

  // The outputs that have a gradient: out of tuples, lists and dicts too. ConfigError with libtorch's reason
  // when forward refuses its inputs, and when there is no such output.
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs);

  [[nodiscard]] torch::nn::Module& module() { return *mirror_; }
  // Parameters, each once.
  [[nodiscard]] std::vector<torch::Tensor> trained() const;
  [[nodiscard]] std::vector<torch::Tensor> frozen() const;  // those that require no gradient

 private:
  std::string path_;
  torch::jit::Module script_;
  std::shared_ptr<torch::nn::Module> mirror_;
};

// What libtorch has to say, in a line: its messages carry the stacks of C++ and of the script.
std::string reason_of(const std::exception& error);

}  // namespace dear::demo
