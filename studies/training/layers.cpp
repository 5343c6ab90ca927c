#include "studies/training/layers.h"

#include <algorithm>

namespace dear::studies::training {
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

}  // namespace

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

void rectify_back(const std::vector<float>& units, std::vector<float>& gradient) {
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = units[i] > 0 ? gradient[i] : 0;
}

void add_gradient(const std::vector<float>& inputs, const std::vector<float>& of_outputs, std::size_t rows,
                  float* of_weights, float* of_bias) {
  const std::size_t inner = inputs.size() / rows;
  const std::size_t columns = of_outputs.size() / rows;
  add_product({inputs.data(), 1, inner}, of_outputs.data(), inner, rows, columns, of_weights);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t j = 0; j < columns; ++j) of_bias[j] += of_outputs[row * columns + j];
}

void pass_back(const std::vector<float>& of_outputs, std::span<const float> weights, std::size_t rows,
               std::vector<float>& transposed, std::vector<float>& of_inputs) {
  const std::size_t columns = of_outputs.size() / rows;
  const std::size_t inner = weights.size() / columns;
  transposed.resize(weights.size());
  for (std::size_t i = 0; i < inner; ++i)
    for (std::size_t j = 0; j < columns; ++j) transposed[j * inner + i] = weights[i * columns + j];
  of_inputs.assign(rows * inner, 0);
  add_product({of_outputs.data(), columns, 1}, transposed.data(), rows, columns, inner, of_inputs.data());
}

}  // namespace dear::studies::training
