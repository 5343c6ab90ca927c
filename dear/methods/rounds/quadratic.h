#pragma once

#include <cstdint>
#include <memory>

#include "dear/methods/rounds/problem.h"

namespace dear::methods::rounds {

// Clients with f_i(x) = 1/2 (x - a_i)^T D_i (x - a_i), where D_i is diagonal with entries of 1 / kappa and 1,
// each as likely, and a_i is normal, times `heterogeneity`, around a point that all share. L is 1, mu is 1 /
// kappa, the optimum has a closed form. Batches add no noise: gradients are always exact.
struct QuadraticShape {
  int clients = 10;
  std::int64_t dimension = 12;
  double condition = 50;
  double heterogeneity = 1;
  std::uint64_t seed = 1;
};
// ConfigError for a shape that cannot be.
std::unique_ptr<Problem> make_quadratic(const QuadraticShape& shape);

}  // namespace dear::methods::rounds
