#include "dear/methods/kfac/factor.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::kfac {
namespace {

void require_sizes(std::size_t matrix, std::size_t packed, std::int64_t dimension) {
  const auto whole = static_cast<std::size_t>(dimension * dimension);
  const auto triangle = static_cast<std::size_t>(dimension * (dimension + 1) / 2);
  if (dimension < 0 || matrix != whole || packed != triangle)
    throw ConfigError(fmt::format(
        "a symmetric matrix of dimension {} has {} elements and an upper triangle of {}: got {} and {}",
        dimension, whole, triangle, matrix, packed));
}

}  // namespace

std::string name_of(Side side) { return side == Side::input ? "A" : "G"; }

std::vector<Factor> factors_of(const std::vector<LayerShape>& layers) {
  std::vector<Factor> factors;
  for (LayerId layer = 0; layer < layers.size(); ++layer) {
    const auto& [name, inputs, outputs] = layers[layer];
    if (inputs < 1 || outputs < 1)
      throw ConfigError(
          fmt::format("layer '{}' has a weight of {} x {}: K-FAC needs at least one row and one column", name,
                      outputs, inputs));
    factors.push_back({layer, Side::input, inputs});
  }
  for (LayerId layer = static_cast<LayerId>(layers.size()); layer-- > 0;)
    factors.push_back({layer, Side::output, layers[layer].outputs});
  return factors;
}

template <typename T>
void pack_upper(std::span<const T> matrix, std::int64_t dimension, std::span<T> packed) {
  require_sizes(matrix.size(), packed.size(), dimension);
  T* into = packed.data();
  for (std::int64_t row = 0; row < dimension; ++row)
    into = std::copy(matrix.data() + row * dimension + row, matrix.data() + (row + 1) * dimension, into);
}

// Below the diagonal by tiles: reading a column element by element would touch a cache line for each.
template <typename T>
void unpack_upper(std::span<const T> packed, std::int64_t dimension, std::span<T> matrix) {
  require_sizes(matrix.size(), packed.size(), dimension);
  const T* from = packed.data();
  for (std::int64_t row = 0; row < dimension; ++row) {
    const std::int64_t length = dimension - row;
    std::copy(from, from + length, matrix.data() + row * dimension + row);
    from += length;
  }
  constexpr std::int64_t kTile = 32;
  for (std::int64_t top = 0; top < dimension; top += kTile)
    for (std::int64_t left = 0; left <= top; left += kTile)
      for (std::int64_t row = top; row < std::min(top + kTile, dimension); ++row)
        for (std::int64_t column = left; column < std::min(left + kTile, row); ++column)
          matrix[static_cast<std::size_t>(row * dimension + column)] =
              matrix[static_cast<std::size_t>(column * dimension + row)];
}

template void pack_upper(std::span<const float>, std::int64_t, std::span<float>);
template void pack_upper(std::span<const double>, std::int64_t, std::span<double>);
template void unpack_upper(std::span<const float>, std::int64_t, std::span<float>);
template void unpack_upper(std::span<const double>, std::int64_t, std::span<double>);

}  // namespace dear::methods::kfac
