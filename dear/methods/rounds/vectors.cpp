#include "dear/methods/rounds/vectors.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dear::methods::rounds {

double dot(std::span<const double> one, std::span<const double> other) {
  double sum = 0;
  for (std::size_t i = 0; i < one.size(); ++i) sum += one[i] * other[i];
  return sum;
}

double squared_distance(std::span<const double> one, std::span<const double> other) {
  double sum = 0;
  for (std::size_t i = 0; i < one.size(); ++i) sum += (one[i] - other[i]) * (one[i] - other[i]);
  return sum;
}

void add_scaled(double a, std::span<const double> x, std::span<double> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] += a * x[i];
}

std::vector<double> solve_positive(const Apply& apply, std::span<const double> b) {
  std::vector<double> x(b.size()), residual(b.begin(), b.end()), direction = residual, applied(b.size());
  double squared = dot(residual, residual);
  const double enough = 1e-30 * squared;
  for (std::size_t step = 0; step < 20 * b.size() && squared > enough; ++step) {
    apply(direction, applied);
    const double length = squared / dot(direction, applied);
    add_scaled(length, direction, x);
    add_scaled(-length, applied, residual);
    const double next = dot(residual, residual);
    for (std::size_t i = 0; i < x.size(); ++i) direction[i] = residual[i] + next / squared * direction[i];
    squared = next;
  }
  return x;
}

double largest_eigenvalue(const Apply& apply, std::size_t dimension) {
  constexpr int kMostSteps = 20'000;
  std::vector<double> vector(dimension), applied(dimension);
  // No eigenvector of a matrix of interest is orthogonal to these.
  for (std::size_t i = 0; i < dimension; ++i) vector[i] = 1 + 0.1 * std::sin(static_cast<double>(i));
  double value = 0;
  for (int step = 0; step < kMostSteps; ++step) {
    const double norm = std::sqrt(dot(vector, vector));
    for (double& one : vector) one /= norm;
    apply(vector, applied);
    const double next = dot(vector, applied);
    std::swap(vector, applied);
    if (next <= 0 || std::abs(next - value) <= 1e-14 * next) return std::max(next, 0.0);
    value = next;
  }
  return value;
}

}  // namespace dear::methods::rounds
