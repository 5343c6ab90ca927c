#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dear/base/vocabulary/ids.h"

// Kronecker-factored approximate curvature (K-FAC): Martens and Grosse 2015, arXiv 1503.05671; for
// convolutions Grosse and Martens 2016, arXiv 1602.01407; in data parallel with communication hidden, Shi et
// al. 2021, arXiv 2107.06533 (SPD-KFAC). The curvature of a layer is approximated by A (x) G, two symmetric
// matrices: A of the layer's inputs, G of the gradients of its outputs.
namespace dear::methods::kfac {

// A layer whose weight is a matrix: linear, or a convolution as a matrix over patches.
struct LayerShape {
  std::string name;
  std::int64_t inputs = 0;   // columns of the weight; one more where there is a bias
  std::int64_t outputs = 0;  // rows of the weight
};

enum class Side : std::uint8_t { input, output };  // A, G

struct Factor {
  LayerId layer = 0;
  Side side = Side::input;
  std::int64_t dimension = 0;

  // Elements of the upper triangle with its diagonal, which is all that travels of a symmetric matrix.
  [[nodiscard]] std::int64_t packed_elements() const { return dimension * (dimension + 1) / 2; }
  friend bool operator==(const Factor&, const Factor&) = default;
};
std::string name_of(Side side);  // "A", "G"

using FactorId = std::uint32_t;  // an index into factors_of()
// In the order in which an iteration computes them: A of the layers in forward order, then G of the layers in
// backward order. ConfigError that names a layer whose sizes are not positive.
std::vector<Factor> factors_of(const std::vector<LayerShape>& layers);

// The upper triangle of a symmetric matrix, row by row, as a dense vector; and the whole matrix of it.
// `matrix` has dimension² elements, `packed` dimension (dimension + 1) / 2. ConfigError for other sizes.
template <typename T>
void pack_upper(std::span<const T> matrix, std::int64_t dimension, std::span<T> packed);
template <typename T>
void unpack_upper(std::span<const T> packed, std::int64_t dimension, std::span<T> matrix);

}  // namespace dear::methods::kfac
