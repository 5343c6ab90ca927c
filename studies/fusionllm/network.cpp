#include "studies/fusionllm/network.h"

#include "studies/training/layers.h"
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace dear::studies::fusionllm {

using training::add_gradient;
using training::affine;
using training::at;
using training::part;
using training::pass_back;
using training::rectify;
using training::rectify_back;

std::vector<Range> ResidualShape::tensors() const {
  std::vector<Range> tensors;
  std::int64_t end = 0;
  const auto add = [&](std::int64_t elements) {
    tensors.push_back({end, end + elements});
    end += elements;
  };
  for (int op = 0; op < operators(); ++op) {
    const std::int64_t columns = op + 1 == operators() ? classes : width;
    add(std::int64_t{op == 0 ? inputs : width} * columns);
    add(columns);
  }
  return tensors;
}

namespace {

// Multiplies each row by its factor.
void normalise(const std::vector<float>& inputs, std::size_t rows, std::vector<float>& factors,
               std::vector<float>& outputs) {
  const std::size_t width = inputs.size() / rows;
  factors.resize(rows);
  outputs.resize(inputs.size());
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const one = inputs.data() + row * width;
    float squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += one[i] * one[i];
    factors[row] = 1 / std::sqrt(1 + squares / static_cast<float>(width));
    for (std::size_t i = 0; i < width; ++i) outputs[row * width + i] = factors[row] * one[i];
  }
}

// Makes the gradient of the outputs that of the inputs.
void normalise_back(const std::vector<float>& outputs, const std::vector<float>& factors,
                    std::vector<float>& gradient) {
  const std::size_t width = outputs.size() / factors.size();
  for (std::size_t row = 0; row < factors.size(); ++row) {
    const float* const one = outputs.data() + row * width;
    float* const of_one = gradient.data() + row * width;
    float product = 0;
    for (std::size_t i = 0; i < width; ++i) product += one[i] * of_one[i];
    product /= static_cast<float>(width);
    for (std::size_t i = 0; i < width; ++i) of_one[i] = factors[row] * (of_one[i] - one[i] * product);
  }
}

}  // namespace

Scored ResidualNetwork::forward(std::span<const float> parameters, const Batch& batch, const Carry& carry) {
  const std::size_t rows = batch.labels.size();
  arrived_.resize(count());
  rectified_.resize(count());
  read_.resize(count());
  factors_.resize(count());
  for (std::size_t op = 0; op < count(); ++op) {
    const std::vector<float>& inputs = op == 0 ? batch.inputs : arrived_[op - 1];
    if (op > 0) normalise(inputs, rows, factors_[op], read_[op]);
    std::vector<float>& units = rectified_[op];
    affine(op == 0 ? inputs : read_[op], rows, part(parameters, tensors_[2 * op]),
           part(parameters, tensors_[2 * op + 1]), units);
    if (op + 1 == count()) break;
    rectify(units);
    arrived_[op] = units;
    if (op > 0)
      for (std::size_t i = 0; i < units.size(); ++i) arrived_[op][i] += inputs[i];
    if (carry) carry(op, Way::activations, arrived_[op]);
  }

  const auto classes = static_cast<std::size_t>(shape_.classes);
  Scored scored;
  of_logits_ = rectified_.back();
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<float> one = std::span(of_logits_).subspan(row * classes, classes);
    const auto label = static_cast<std::size_t>(batch.labels[row]);
    const auto largest = std::max_element(one.begin(), one.end());
    if (static_cast<std::size_t>(largest - one.begin()) == label) ++scored.right;
    const float most = *largest, of_label = one[label] - most;
    float sum = 0;
    for (float& value : one) sum += value = std::exp(value - most);
    scored.loss += (std::log(sum) - of_label) / static_cast<double>(rows);
    for (float& value : one) value /= sum * static_cast<float>(rows);
    one[label] -= 1 / static_cast<float>(rows);
  }
  return scored;
}

Scored ResidualNetwork::score(std::span<const float> parameters, const Batch& batch, const Carry& carry) {
  return forward(parameters, batch, carry);
}

Scored ResidualNetwork::learn(std::span<const float> parameters, const Batch& batch, const Carry& carry,
                              float weight, std::span<float> gradient) {
  const Scored scored = forward(parameters, batch, carry);
  const std::size_t rows = batch.labels.size();
  for (float& value : of_logits_) value *= weight;
  gradient_ = of_logits_;
  for (std::size_t op = count(); op-- > 0;) {
    // gradient_ is now that of the output, as it came back.
    const bool is_head = op + 1 == count();
    of_units_ = gradient_;
    if (!is_head) rectify_back(rectified_[op], of_units_);
    add_gradient(op == 0 ? batch.inputs : read_[op], of_units_, rows, at(gradient, tensors_[2 * op]),
                 at(gradient, tensors_[2 * op + 1]));
    if (op == 0) break;
    pass_back(of_units_, part(parameters, tensors_[2 * op]), rows, transposed_, of_inputs_);
    normalise_back(read_[op], factors_[op], of_inputs_);
    if (is_head)
      gradient_ = of_inputs_;
    else
      for (std::size_t i = 0; i < gradient_.size(); ++i) gradient_[i] += of_inputs_[i];
    if (carry) carry(op - 1, Way::gradients, gradient_);
  }
  return scored;
}

}  // namespace dear::studies::fusionllm
