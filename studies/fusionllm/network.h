#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "dear/base/vocabulary/range.h"

namespace dear::studies::fusionllm {

// The network has operators in a row: the first reads the images, `blocks` add a rectified layer to what they
// read, and the head has the logits of the classes. Blocks and head first divide each row that they read by
// the root of 1 more than its mean square (as Zhang and Sennrich 2019, arXiv 1910.07467, but for the 1): rows
// keep within bounds, and one that was dropped has no large gradient.
struct ResidualShape {
  int inputs = 64;
  int width = 128;
  int blocks = 6;
  int classes = 10;

  [[nodiscard]] int operators() const { return blocks + 2; }
  // The parameters lie in one flat vector: each operator's weights, rows of inputs by columns of outputs,
  // then its bias.
  [[nodiscard]] std::vector<Range> tensors() const;
};

enum class Way { activations, gradients };
// A carry changes what comes out of an operator on its way to the next, or the gradient of that on its way
// back. Backward takes the change for none: the gradient of what arrived is that of what was sent.
using Carry = std::function<void(std::size_t operator_number, Way way, std::vector<float>& values)>;

struct Batch {
  std::vector<float> inputs;  // by sample
  std::vector<int> labels;    // at least one
};

struct Scored {
  double loss = 0;  // the mean cross entropy
  int right = 0;    // samples that get the class of their label
};

// This network has no parameters of its own, and keeps room for its work. One thread uses it at a time.
class ResidualNetwork {
 public:
  explicit ResidualNetwork(const ResidualShape& shape) : shape_(shape), tensors_(shape.tensors()) {}

  // Adds the gradient of the mean loss of the batch, times `weight`.
  Scored learn(std::span<const float> parameters, const Batch& batch, const Carry& carry, float weight,
               std::span<float> gradient);
  Scored score(std::span<const float> parameters, const Batch& batch, const Carry& carry);

 private:
  Scored forward(std::span<const float> parameters, const Batch& batch, const Carry& carry);
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(shape_.operators()); }

  ResidualShape shape_;
  std::vector<Range> tensors_;
  std::vector<std::vector<float>> arrived_;    // by operator, what the next one reads
  std::vector<std::vector<float>> rectified_;  // by operator
  std::vector<std::vector<float>> read_;       // by operator, what it multiplies
  std::vector<std::vector<float>> factors_;    // by operator and row, of what it read
  std::vector<float> of_logits_, gradient_, of_units_, of_inputs_, transposed_;
};

}  // namespace dear::studies::fusionllm
