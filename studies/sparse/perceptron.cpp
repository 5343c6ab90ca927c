#include "studies/sparse/perceptron.h"

#include "studies/training/layers.h"
#include <algorithm>
#include <cmath>
#include <cstddef>

namespace dear::studies::sparse {

using training::add_gradient;
using training::affine;
using training::at;
using training::part;
using training::pass_back;
using training::rectify;
using training::rectify_back;

std::vector<Range> PerceptronShape::tensors() const {
  std::vector<Range> tensors;
  std::int64_t end = 0;
  for (const std::int64_t elements :
       {std::int64_t{inputs} * hidden, std::int64_t{hidden}, std::int64_t{hidden} * hidden,
        std::int64_t{hidden}, std::int64_t{hidden} * classes, std::int64_t{classes}}) {
    tensors.push_back({end, end + elements});
    end += elements;
  }
  return tensors;
}

void Perceptron::forward(std::span<const float> parameters, const Samples& samples) {
  const std::size_t rows = samples.labels.size();
  const auto tensor = [&](std::size_t i) { return part(parameters, tensors_[i]); };
  affine(samples.inputs, rows, tensor(0), tensor(1), first_);
  rectify(first_);
  affine(first_, rows, tensor(2), tensor(3), second_);
  rectify(second_);
  affine(second_, rows, tensor(4), tensor(5), logits_);
}

double Perceptron::loss_and_gradient(std::span<const float> parameters, const Samples& samples,
                                     std::span<float> gradient) {
  forward(parameters, samples);
  const std::size_t rows = samples.labels.size();
  const auto classes = static_cast<std::size_t>(shape_.classes);
  double loss = 0;
  of_logits_ = logits_;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<float> one = std::span(of_logits_).subspan(row * classes, classes);
    const auto label = static_cast<std::size_t>(samples.labels[row]);
    const float largest = *std::max_element(one.begin(), one.end());
    const float of_label = one[label] - largest;
    float sum = 0;
    for (float& value : one) sum += value = std::exp(value - largest);
    loss += std::log(sum) - of_label;
    for (float& value : one) value /= sum * static_cast<float>(rows);
    one[label] -= 1 / static_cast<float>(rows);
  }
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  add_gradient(second_, of_logits_, rows, at(gradient, tensors_[4]), at(gradient, tensors_[5]));
  pass_back(of_logits_, part(parameters, tensors_[4]), rows, transposed_, of_second_);
  rectify_back(second_, of_second_);
  add_gradient(first_, of_second_, rows, at(gradient, tensors_[2]), at(gradient, tensors_[3]));
  pass_back(of_second_, part(parameters, tensors_[2]), rows, transposed_, of_first_);
  rectify_back(first_, of_first_);
  add_gradient(samples.inputs, of_first_, rows, at(gradient, tensors_[0]), at(gradient, tensors_[1]));
  return loss / static_cast<double>(rows);
}

std::vector<int> Perceptron::classify(std::span<const float> parameters, const Samples& samples) {
  forward(parameters, samples);
  std::vector<int> found;
  for (auto one = logits_.begin(); one != logits_.end(); one += shape_.classes)
    found.push_back(static_cast<int>(std::max_element(one, one + shape_.classes) - one));
  return found;
}

double Perceptron::accuracy(std::span<const float> parameters, const Samples& samples) {
  const std::vector<int> found = classify(parameters, samples);
  int right = 0;
  for (std::size_t i = 0; i < found.size(); ++i) right += found[i] == samples.labels[i] ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(found.size());
}

}  // namespace dear::studies::sparse
