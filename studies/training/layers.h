#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dear/base/vocabulary/range.h"

// Layers of networks written by hand: forward, and backward. A matrix lies row after row; the weights of a
// layer have a row for each input and a column for each output. `rows` are samples, at least one.
namespace dear::studies::training {

inline std::span<const float> part(std::span<const float> values, const Range& range) {
  return values.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}
inline float* at(std::span<float> values, const Range& range) { return values.data() + range.begin; }

// outputs = inputs * weights + bias.
void affine(const std::vector<float>& inputs, std::size_t rows, std::span<const float> weights,
            std::span<const float> bias, std::vector<float>& outputs);

// Rectified linear units.
void rectify(std::vector<float>& values);
// Their gradient from that of their outputs, in place.
void rectify_back(const std::vector<float>& units, std::vector<float>& gradient);

// Adds the gradients of a layer's weights and bias.
void add_gradient(const std::vector<float>& inputs, const std::vector<float>& of_outputs, std::size_t rows,
                  float* of_weights, float* of_bias);

// The gradient of a layer's inputs; `transposed` is room for its weights by columns.
void pass_back(const std::vector<float>& of_outputs, std::span<const float> weights, std::size_t rows,
               std::vector<float>& transposed, std::vector<float>& of_inputs);

}  // namespace dear::studies::training
