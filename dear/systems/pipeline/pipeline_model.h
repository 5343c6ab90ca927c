#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace dear {

// A model as operators and what each reads: what a Pipeline cuts into stages. Branches, skips, values with
// several readers and parameters of several operators are allowed.
//
//   dear::PipelineModel model(gpt.ptr());
//   auto x = model.add("embedding", gpt->embedding, {model.batch()});
//   for (...) x = model.add(name, block, {x});
//   model.add_function("head", [gpt](const auto& in) { return torch::linear(in[0], gpt->embedding->weight);
//   }, {x});
//
// One process computes the operators in the order in which they are added. The last one makes the model's
// output, from which the loss is computed. A value: copies share the modules.
class PipelineModel {
 public:
  using Tensors = std::vector<torch::Tensor>;
  using Compute = std::function<torch::Tensor(const Tensors& inputs)>;
  using ComputeSeveral = std::function<Tensors(const Tensors& inputs)>;

  // A tensor: of the batch, or made by an operator.
  struct Value {
    int maker = -1;  // the operator; -1: the batch
    int index = 0;   // among those of the batch, or that the operator makes
    friend auto operator<=>(const Value&, const Value&) = default;
  };
  struct Operator {
    std::string name;
    std::vector<Value> inputs;
    int outputs = 1;
    ComputeSeveral compute;
    Tensors uses;  // parameters and buffers
  };

  // `root` has every parameter and buffer of the model; their names in it are those of the state.
  explicit PipelineModel(std::shared_ptr<torch::nn::Module> root);

  // The tensor of this number in the batch; dimension 0 of each is that of samples.
  [[nodiscard]] static Value batch(int index = 0) { return {.maker = -1, .index = index}; }

  // Adds an operator that computes one tensor of its inputs, or several. It does not change them in place,
  // and computes the same shapes in every micro-batch. `uses` lists buffers and frozen parameters that it
  // reads; parameters that require a gradient are found. ConfigError for a name that is empty or there twice,
  // no input, a value of no earlier operator, and what `root` does not have.
  Value add_function(std::string name, Compute compute, std::vector<Value> inputs, Tensors uses = {});
  std::vector<Value> add_several(std::string name, int outputs, ComputeSeveral compute,
                                 std::vector<Value> inputs, Tensors uses = {});
  // A module, or a holder of one, whose forward takes the inputs.
  template <std::derived_from<torch::nn::Module> Module>
  Value add(std::string name, const std::shared_ptr<Module>& module, std::vector<Value> inputs) {
    return add_function(
        std::move(name), [module](const Tensors& in) { return forward(*module, in); }, std::move(inputs),
        tensors_of(*module));
  }
  template <typename Contained>
  Value add(std::string name, const torch::nn::ModuleHolder<Contained>& module, std::vector<Value> inputs) {
    return add(std::move(name), module.ptr(), std::move(inputs));
  }

  [[nodiscard]] const std::vector<Operator>& operators() const { return operators_; }
  [[nodiscard]] const torch::nn::Module& root() const { return *root_; }

 private:
  template <typename Module>
  static torch::Tensor forward(Module& module, const Tensors& in) {
    if constexpr (requires { module.forward(in[0]); })
      if (in.size() == 1) return module.forward(in[0]);
    if constexpr (requires { module.forward(in[0], in[1]); })
      if (in.size() == 2) return module.forward(in[0], in[1]);
    if constexpr (requires { module.forward(in[0], in[1], in[2]); })
      if (in.size() == 3) return module.forward(in[0], in[1], in[2]);
    refuse_inputs(module.name(), in.size());
  }
  [[noreturn]] static void refuse_inputs(const std::string& module, std::size_t inputs);
  static Tensors tensors_of(const torch::nn::Module& module);

  std::shared_ptr<torch::nn::Module> root_;
  std::vector<Operator> operators_;
};

}  // namespace dear
