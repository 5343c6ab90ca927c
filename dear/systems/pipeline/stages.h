#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/base/vocabulary/range.h"
#include "dear/methods/pipeline/plan.h"
#include "dear/systems/pipeline/sampled.h"

// The stages of a plan: which operators they compute, and what crosses the cuts between them.
namespace dear::systems::pipeline {

// A tensor that travels over a cut, and its gradient back, at ratios of elements that there are to those that
// travel. At 1 all of them travel, as they are; above, an index and a value in fp32 for each of
// max(1, floor(elements / ratio)) elements of largest magnitude.
struct Crossing {
  Value value;
  SampledTensor what;
  double activation_ratio = 1, gradient_ratio = 1;
  [[nodiscard]] double ratio(bool gradient) const { return gradient ? gradient_ratio : activation_ratio; }
};

// A cut lies behind a stage. Over it goes, for each micro-batch, one message of activations, and one of
// gradients back where anything has one.
struct Cut {
  std::vector<Crossing> crossings;
  std::string names;  // of operators: "'h' and 2 more"

  // Whether this crossing is part of such a message.
  [[nodiscard]] static bool carries(const Crossing& one, bool gradient) {
    return !gradient || one.what.has_gradient;
  }
  [[nodiscard]] bool carries(bool gradient) const;
  [[nodiscard]] std::int64_t bytes(bool gradient) const;
  // A message as bytes of the CPU. `tensors` are by crossing; those that it does not carry are not read, and
  // not defined in what unpack() returns, which refers to the message's memory.
  [[nodiscard]] torch::Tensor pack(bool gradient, const Tensors& tensors) const;
  [[nodiscard]] Tensors unpack(bool gradient, const torch::Tensor& message) const;
};

struct Stage {
  int number = 0;
  int rank = 0;
  Range operators;
  std::string text;  // "stage 1 ('first' to 'last')"
};

struct Stages {
  std::vector<Stage> stages;
  std::vector<Cut> cuts;  // cut s is between stages s and s + 1
  [[nodiscard]] int rank_of(int stage) const { return stages[static_cast<std::size_t>(stage)].rank; }
};

// As a checked plan has them. Device d is `replicas` ranks in a row, of which this pipeline has number
// `replica`.
Stages stages_of(const methods::pipeline::Plan& plan, const PipelineModel& model, const Sampled& sampled,
                 int replicas, int replica);

}  // namespace dear::systems::pipeline
