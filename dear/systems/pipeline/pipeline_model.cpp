#include "dear/systems/pipeline/pipeline_model.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear {

PipelineModel::PipelineModel(std::shared_ptr<torch::nn::Module> root) : root_(std::move(root)) {
  if (root_ == nullptr)
    throw ConfigError("the model of a pipeline is null: give the module that has its parameters");
}

PipelineModel::Value PipelineModel::add_function(std::string name, Compute compute, std::vector<Value> inputs,
                                                 Tensors uses) {
  return add_several(
             std::move(name), 1,
             [compute = std::move(compute)](const Tensors& in) { return Tensors{compute(in)}; },
             std::move(inputs), std::move(uses))
      .front();
}

std::vector<PipelineModel::Value> PipelineModel::add_several(std::string name, int outputs,
                                                             ComputeSeveral compute,
                                                             std::vector<Value> inputs, Tensors uses) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("operator '{}' of a pipeline {}", name, why));
  };
  if (name.empty()) refuse("has no name: give it one");
  if (std::any_of(operators_.begin(), operators_.end(),
                  [&](const Operator& one) { return one.name == name; }))
    refuse("is there twice: give each a name of its own");
  if (outputs < 1) refuse(fmt::format("makes {} tensors: it makes at least one", outputs));
  if (inputs.empty()) refuse("reads nothing: give it a value of the batch or of an operator");
  for (const Value& input : inputs) {
    if (input.index < 0 || input.maker < -1 || input.maker >= static_cast<int>(operators_.size()) ||
        (input.maker >= 0 && input.index >= operators_[index_of(input.maker)].outputs))
      refuse(
          "reads a value that no operator before it makes: add operators in the order in which they are "
          "computed");
  }
  const Tensors known = tensors_of(*root_);
  for (const torch::Tensor& one : uses)
    if (std::none_of(known.begin(), known.end(),
                     [&](const torch::Tensor& other) { return one.is_same(other); }))
      refuse("uses a tensor that is no parameter or buffer of the model: register its module within it");
  std::vector<Value> made;
  for (int index = 0; index < outputs; ++index)
    made.push_back({.maker = static_cast<int>(operators_.size()), .index = index});
  operators_.push_back({.name = std::move(name),
                        .inputs = std::move(inputs),
                        .outputs = outputs,
                        .compute = std::move(compute),
                        .uses = std::move(uses)});
  return made;
}

void PipelineModel::refuse_inputs(const std::string& module, std::size_t inputs) {
  throw ConfigError(fmt::format("the forward of {} does not take {}: give a function that calls it", module,
                                counted(inputs, "tensor")));
}

PipelineModel::Tensors PipelineModel::tensors_of(const torch::nn::Module& module) {
  Tensors tensors = module.parameters();
  const Tensors buffers = module.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  return tensors;
}

}  // namespace dear
