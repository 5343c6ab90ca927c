#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dear/base/vocabulary/range.h"

namespace dear::studies::sparse {

// Two hidden layers of rectified linear units, and one more whose outputs are the logits of the classes.
struct PerceptronShape {
  int inputs = 32;
  int hidden = 128;
  int classes = 10;

  // The parameters in one flat vector: of each layer its weights, rows of inputs by columns of outputs, then
  // its bias.
  [[nodiscard]] std::vector<Range> tensors() const;
  [[nodiscard]] std::int64_t parameters() const { return tensors().back().end; }
};

// Rows of inputs, and a class for each row.
struct Samples {
  std::vector<float> inputs;
  std::vector<int> labels;
};

// A perceptron without parameters of its own; keeps room for its work. One thread at a time.
class Perceptron {
 public:
  explicit Perceptron(const PerceptronShape& shape) : shape_(shape), tensors_(shape.tensors()) {}

  // Returns the mean cross entropy of the samples, at least one, and writes its gradient.
  double loss_and_gradient(std::span<const float> parameters, const Samples& samples,
                           std::span<float> gradient);
  // The class of largest logit of each sample, the first of equal ones.
  std::vector<int> classify(std::span<const float> parameters, const Samples& samples);
  // The share of samples that get the class of their label.
  double accuracy(std::span<const float> parameters, const Samples& samples);

 private:
  void forward(std::span<const float> parameters, const Samples& samples);

  PerceptronShape shape_;
  std::vector<Range> tensors_;
  std::vector<float> first_, second_, logits_;           // outputs of the layers, by sample
  std::vector<float> of_first_, of_second_, of_logits_;  // gradients of these
  std::vector<float> transposed_;
};

}  // namespace dear::studies::sparse
