#include "dear/study/sparse/stability.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "dear/codec/feedback.h"

namespace dear::study::sparse {
namespace {

constexpr double kMomentum = 0.9;
constexpr int kHalvings = 40;
constexpr int kSquarings = 30;

template <std::size_t n>
using Matrix = std::array<std::array<double, n>, n>;

struct Process {
  Compression compression;
  double momentum_after = 0;  // of the optimiser
};

// A step on a parabola of curvature 1 as a map of (parameter, residual, momentum), by columns that Feedback
// makes of the three unit vectors.
Matrix<3> map_of(const Process& process, double learning_rate, bool travels) {
  const Compression& compression = process.compression;
  codec::Feedback feedback(compression, 3);
  std::vector<float> gradients{1, 0, 0};
  if (compression.feedback) feedback.residual({1, 2})[0] = 1;
  if (compression.momentum != 0) feedback.momentum({2, 3})[0] = 1;
  feedback.prepare(gradients, {});
  feedback.keep(travels ? std::vector<float>(3) : gradients);
  Matrix<3> map{};
  for (std::size_t column = 0; column < 3; ++column) {
    const auto at = static_cast<std::int64_t>(column);
    const double velocity = column == 2 ? 1 : 0;
    const double moved = process.momentum_after * velocity + (travels ? double{gradients[column]} : 0);
    map[0][column] = (column == 0 ? 1 : 0) - learning_rate * moved;
    if (compression.feedback) map[1][column] = feedback.residual({at, at + 1})[0];
    map[2][column] = compression.momentum != 0 ? feedback.momentum({at, at + 1})[0] : moved;
  }
  return map;
}

Matrix<9> moments(const Process& process, double learning_rate, double p) {
  Matrix<9> sum{};
  for (const bool travels : {true, false}) {
    const Matrix<3> map = map_of(process, learning_rate, travels);
    for (std::size_t i = 0; i < 9; ++i)
      for (std::size_t j = 0; j < 9; ++j)
        sum[i][j] += (travels ? p : 1 - p) * map[i / 3][j / 3] * map[i % 3][j % 3];
  }
  return sum;
}

// The logarithm of the largest absolute eigenvalue, from a high power of the matrix.
double growth(Matrix<9> matrix) {
  double logarithm = 0;
  double weight = 1;
  for (int squaring = 0; squaring < kSquarings; ++squaring) {
    double largest = 0;
    for (const auto& row : matrix)
      for (const double entry : row) largest = std::max(largest, std::abs(entry));
    logarithm += weight * std::log(largest);
    weight /= 2;
    Matrix<9> square{};
    for (std::size_t i = 0; i < 9; ++i)
      for (std::size_t k = 0; k < 9; ++k)
        for (std::size_t j = 0; j < 9; ++j) square[i][j] += matrix[i][k] / largest * (matrix[k][j] / largest);
    matrix = square;
  }
  return logarithm;
}

double limit_of(const Process& process, double p) {
  double stable = 0;
  double unstable = 5;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (stable + unstable) / 2;
    (growth(moments(process, middle, p)) < 0 ? stable : unstable) = middle;
  }
  return stable;
}

Compression random_k(bool feedback, double momentum) {
  Compression compression{.scheme = Scheme::random_k};
  compression.feedback = feedback;
  compression.momentum = momentum;
  return compression;
}

}  // namespace

std::vector<StabilityLimit> stability_limits(const std::vector<double>& probabilities) {
  std::vector<StabilityLimit> limits;
  for (const double p : probabilities)
    limits.push_back(
        {.p = p,
         .law = 2 * p / (2 - p),
         .feedback = limit_of({.compression = random_k(true, 0)}, p),
         .no_feedback = limit_of({.compression = random_k(false, 0)}, p),
         .momentum_after = limit_of({.compression = random_k(true, 0), .momentum_after = kMomentum}, p),
         .momentum_before = limit_of({.compression = random_k(true, kMomentum)}, p)});
  return limits;
}

}  // namespace dear::study::sparse
