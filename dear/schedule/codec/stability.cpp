#include "dear/schedule/codec/stability.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "dear/schedule/codec/feedback.h"

namespace dear::codec {
namespace {

constexpr double kMostRate = 5;
constexpr int kHalvings = 40;
constexpr int kSquarings = 30;

using Map = std::array<std::array<double, 3>, 3>;

// By columns, which Feedback makes of the three unit vectors.
Map map_of(const ParabolaDescent& descent, double learning_rate, bool travels) {
  const Compression& compression = descent.compression;
  Feedback feedback(compression, 3);
  std::vector<float> gradients{1, 0, 0};
  if (compression.feedback) feedback.residual({1, 2})[0] = 1;
  if (compression.momentum != 0) feedback.momentum({2, 3})[0] = 1;
  feedback.prepare(gradients, {});
  feedback.keep(travels ? std::vector<float>(3) : gradients);
  Map map{};
  for (std::size_t column = 0; column < 3; ++column) {
    const auto at = static_cast<std::int64_t>(column);
    const double velocity = column == 2 ? 1 : 0;
    const double moved = descent.momentum_after * velocity + (travels ? double{gradients[column]} : 0);
    map[0][column] = (column == 0 ? 1 : 0) - learning_rate * moved;
    if (compression.feedback) map[1][column] = feedback.residual({at, at + 1})[0];
    map[2][column] = compression.momentum != 0 ? feedback.momentum({at, at + 1})[0] : moved;
  }
  return map;
}

// The logarithm of the largest absolute eigenvalue, from a high power of the matrix.
double growth(MomentMatrix matrix) {
  double logarithm = 0;
  double weight = 1;
  for (int squaring = 0; squaring < kSquarings; ++squaring) {
    double largest = 0;
    for (const auto& row : matrix)
      for (const double entry : row) largest = std::max(largest, std::abs(entry));
    logarithm += weight * std::log(largest);
    weight /= 2;
    MomentMatrix square{};
    for (std::size_t i = 0; i < 9; ++i)
      for (std::size_t k = 0; k < 9; ++k)
        for (std::size_t j = 0; j < 9; ++j) square[i][j] += matrix[i][k] / largest * (matrix[k][j] / largest);
    matrix = square;
  }
  return logarithm;
}

}  // namespace

MomentMatrix moment_matrix(const ParabolaDescent& descent, double learning_rate, double p) {
  MomentMatrix sum{};
  for (const bool travels : {true, false}) {
    const Map map = map_of(descent, learning_rate, travels);
    for (std::size_t i = 0; i < 9; ++i)
      for (std::size_t j = 0; j < 9; ++j)
        sum[i][j] += (travels ? p : 1 - p) * map[i / 3][j / 3] * map[i % 3][j % 3];
  }
  return sum;
}

double stability_limit(const ParabolaDescent& descent, double p) {
  double stable = 0;
  double unstable = kMostRate;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (stable + unstable) / 2;
    (growth(moment_matrix(descent, middle, p)) < 0 ? stable : unstable) = middle;
  }
  return stable;
}

}  // namespace dear::codec
