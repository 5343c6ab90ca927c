#pragma once

#include <cstdint>
#include <memory>

#include "dear/methods/rounds/problem.h"

namespace dear::methods::rounds {

// Logistic regression with a ridge on data that are drawn: f_i(x) = 1/m sum_j log(1 + exp(-b_j a_j^T x))
// + mu/2 |x|^2. Rows are sparse; features are as popular as Zipf's law says (feature k has a weight of
// 1 / (k + 1)), as words are; labels are sign(w_i^T a + noise), where w_i = w + heterogeneity u_i. With
// l_i = lambda_max(A_i^T A_i) / (4 m), mu is max l_i / (kappa - 1), so kappa is exact. It stands for sets
// such as w8a and real-sim, which it is not: theorems depend on clients, dimension, kappa and heterogeneity
// alone.
struct LogisticShape {
  int clients = 100;
  std::int64_t dimension = 300;
  int rows = 3;            // of a client
  int nonzeros = 12;       // of a row, at most half the dimension
  double condition = 1e4;  // kappa
  double heterogeneity = 1;
  std::uint64_t seed = 1;
};
// ConfigError for a shape that cannot be.
std::unique_ptr<Problem> make_logistic(const LogisticShape& shape);

}  // namespace dear::methods::rounds
