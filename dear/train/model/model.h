#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

namespace torch::nn {
class Module;
}

namespace dear {

namespace train {
class PartOfTraining;  // what a Kfac needs of a training
class TrainingState;   // what is saved of a training
}  // namespace train

// A model as DataParallel sees it: its tensors, whatever owns them.
struct Model {
  struct Named {
    std::string name;  // with the path of the module that owns it: "encoder.0.weight"
    torch::Tensor tensor;
  };
  std::vector<Named> parameters;  // a tensor that several modules share may stand here under each name
  std::vector<Named> buffers;
  // The buffers as they are when it is called, where a model may replace them, register or drop some. Without
  // it they stay those. Called on the program's thread.
  std::function<std::vector<Named>()> buffers_now{};
};

// The tensors of a module of libtorch, in order of registration.
Model model_of(const torch::nn::Module& module);
// Returns what model_of() does, with buffers_now: the module must live as long as the result.
Model live_model_of(const torch::nn::Module& module);

// SHA-256, in hex, of all parameters: names, shapes, dtypes and bytes in the order of the model.
std::string parameter_digest(const Model& model);
std::string parameter_digest(const torch::nn::Module& module);

}  // namespace dear
