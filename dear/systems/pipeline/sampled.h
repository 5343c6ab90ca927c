#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "dear/methods/pipeline/operators.h"
#include "dear/systems/pipeline/pipeline_model.h"

// A sample passes all operators once: the shapes they make of it, and how long they take.
namespace dear::systems::pipeline {

using Tensors = PipelineModel::Tensors;
using Value = PipelineModel::Value;

struct SampledTensor {
  std::vector<std::int64_t> sizes;
  at::ScalarType type = at::kFloat;
  bool requires_grad = false;
  bool has_gradient = false;  // that comes back from what reads it

  [[nodiscard]] std::int64_t elements() const { return c10::multiply_integers(sizes); }
  [[nodiscard]] std::int64_t element_bytes() const {
    return static_cast<std::int64_t>(c10::elementSize(type));
  }
  [[nodiscard]] std::int64_t bytes() const { return elements() * element_bytes(); }
  [[nodiscard]] bool is_like(const torch::Tensor& tensor) const {
    return tensor.scalar_type() == type && tensor.sizes() == at::IntArrayRef(sizes);
  }
};

struct SampledOperator {
  std::vector<SampledTensor> outputs;
  Tensors uses;  // parameters and buffers, those that were found with those that were listed
  bool changes_buffers = false;
  double forward_seconds = 0, backward_seconds = 0;  // where they were measured
};

struct Sampled {
  std::vector<SampledTensor> batch;
  std::vector<SampledOperator> operators;
  [[nodiscard]] const SampledTensor& operator[](const Value& value) const {
    return value.maker < 0 ? batch.at(static_cast<std::size_t>(value.index))
                           : operators.at(static_cast<std::size_t>(value.maker))
                                 .outputs.at(static_cast<std::size_t>(value.index));
  }
};

// Computes every operator on the micro-batch, twice more and backward where they are measured. Buffers and
// the state of the random generator stay as they were, and no gradient is left. ConfigError, naming the
// operator, where one changes what it reads, makes other than tensors of the CPU in a type that travels, uses
// what the model does not have, or is read by none; and where the last one makes nothing to train.
Sampled sample(const PipelineModel& model, const Tensors& micro_batch, bool measure);

// The operators as the planner reads them. Their work is what was measured on a device of this speed; else 2
// operations for each element of a weight and each row, and 64 for each element made.
methods::pipeline::OperatorDag dag_of(const PipelineModel& model, const Sampled& sampled,
                                      double flops_per_second);

}  // namespace dear::systems::pipeline
