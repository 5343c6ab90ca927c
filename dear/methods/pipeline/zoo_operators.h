#pragma once

#include <cstdint>
#include <optional>

#include "dear/base/vocabulary/dtype.h"
#include "dear/methods/pipeline/operators.h"
#include "dear/workload/zoo/models.h"

namespace dear::methods::pipeline {

struct ModelOptions {
  std::int64_t batch = 0;  // samples of one iteration; 0: the model's own
  int micro_batches = 1;
  std::int64_t size = 0;         // of a sample (zoo::Model::size); 0: the model's own
  std::optional<DType> dtype{};  // of parameters and activations; else the model's own
};

// Samples of one micro-batch. ConfigError unless the batch can be divided.
std::int64_t samples_of_micro_batch(std::int64_t batch, int micro_batches);

// A GPT-2 or ResNet of the zoo, each layer an operator, with its residual connections as edges: the layer in
// which a sum ends reads both terms. A sum, activation, pool or attention is part of the layer before it. Of
// operators that only move memory, each element moved counts as 64 operations: about what devices of the zoo
// compute meanwhile. An output embedding is tied to the input embedding. ConfigError for a model of another
// family, and a batch that cannot be divided.
OperatorDag operators_of(const zoo::Model& model, const ModelOptions& options = {});

}  // namespace dear::methods::pipeline
