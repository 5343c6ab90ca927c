#include "dear/study/sparse/perceptron.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace dear::study::sparse {
namespace {

// A matrix, row after row, whose entry (row, column) lies at row * by_row + column * by_column.
struct Matrix {
  const float* values;
  std::size_t by_row, by_column;
  [[nodiscard]] float at(std::size_t row, std::size_t column) const {
    return values[row * by_row + column * by_column];
  }
};

// out += left * right, of rows x inner and inner x columns. Four rows of `right` at a time, so that a row of
// `out` is loaded and stored for four products.
void add_product(const Matrix& left, const float* right, std::size_t rows, std::size_t inner,
                 std::size_t columns, float* out) {
  for (std::size_t row = 0; row < rows; ++row) {
    float* const __restrict sum = out + row * columns;
    std::size_t i = 0;
    for (; i + 4 <= inner; i += 4) {
      const float a = left.at(row, i), b = left.at(row, i + 1), c = left.at(row, i + 2),
                  d = left.at(row, i + 3);
      const float* const __restrict first = right + i * columns;
      const float* const __restrict second = first + columns;
      const float* const __restrict third = second + columns;
      const float* const __restrict fourth = third + columns;
      for (std::size_t j = 0; j < columns; ++j)
        sum[j] += (a * first[j] + b * second[j]) + (c * third[j] + d * fourth[j]);
    }
    for (; i < inner; ++i) {
      const float a = left.at(row, i);
      const float* const __restrict first = right + i * columns;
      for (std::size_t j = 0; j < columns; ++j) sum[j] += a * first[j];
    }
  }
}

std::span<const float> part(std::span<const float> values, const Range& range) {
  return values.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}
float* at(std::span<float> values, const Range& range) { return values.data() + range.begin; }

// outputs = inputs * weights + bias.
void affine(const std::vector<float>& inputs, std::size_t rows, std::span<const float> weights,
            std::span<const float> bias, std::vector<float>& outputs) {
  const std::size_t columns = bias.size();
  const std::size_t inner = weights.size() / columns;
  outputs.resize(rows * columns);
  for (std::size_t row = 0; row < rows; ++row)
    std::copy(bias.begin(), bias.end(), outputs.begin() + static_cast<std::ptrdiff_t>(row * columns));
  add_product({inputs.data(), inner, 1}, weights.data(), rows, inner, columns, outputs.data());
}

void rectify(std::vector<float>& values) {
  for (float& value : values) value = value > 0 ? value : 0;
}

// The gradients of a layer's weights and bias, which are zero before.
void add_gradient(const std::vector<float>& inputs, const std::vector<float>& of_outputs, std::size_t rows,
                  float* of_weights, float* of_bias) {
  const std::size_t inner = inputs.size() / rows;
  const std::size_t columns = of_outputs.size() / rows;
  add_product({inputs.data(), 1, inner}, of_outputs.data(), inner, rows, columns, of_weights);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t j = 0; j < columns; ++j) of_bias[j] += of_outputs[row * columns + j];
}

// The gradient of what a layer got from rectified units; `transposed` is room for its weights by columns.
void pass_back(const std::vector<float>& of_outputs, std::span<const float> weights, std::size_t rows,
               const std::vector<float>& units, std::vector<float>& transposed, std::vector<float>& result) {
  const std::size_t columns = of_outputs.size() / rows;
  const std::size_t inner = weights.size() / columns;
  transposed.resize(weights.size());
  for (std::size_t i = 0; i < inner; ++i)
    for (std::size_t j = 0; j < columns; ++j) transposed[j * inner + i] = weights[i * columns + j];
  result.assign(rows * inner, 0);
  add_product({of_outputs.data(), columns, 1}, transposed.data(), rows, columns, inner, result.data());
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = units[i] > 0 ? result[i] : 0;
}

}  // namespace

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
  pass_back(of_logits_, part(parameters, tensors_[4]), rows, second_, transposed_, of_second_);
  add_gradient(first_, of_second_, rows, at(gradient, tensors_[2]), at(gradient, tensors_[3]));
  pass_back(of_second_, part(parameters, tensors_[2]), rows, first_, transposed_, of_first_);
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

}  // namespace dear::study::sparse
