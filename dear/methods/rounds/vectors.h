#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

// Dense vectors of fp64, and the equations of Newton's method.
namespace dear::methods::rounds {

double dot(std::span<const double> one, std::span<const double> other);
double squared_distance(std::span<const double> one, std::span<const double> other);
// y += a x
void add_scaled(double a, std::span<const double> x, std::span<double> y);

using Apply = std::function<void(std::span<const double> in, std::span<double> out)>;
// Solves A x = b for a symmetric positive definite A by conjugate gradients (Hestenes and Stiefel 1952,
// doi:10.6028/jres.049.044), until the residual is 1e-15 of b or no longer shrinks.
std::vector<double> solve_positive(const Apply& apply, std::span<const double> b);

// The largest eigenvalue of a positive semidefinite A, by power iteration.
double largest_eigenvalue(const Apply& apply, std::size_t dimension);

}  // namespace dear::methods::rounds
