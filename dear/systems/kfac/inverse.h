#pragma once

#include <torch/types.h>

namespace dear::systems::kfac {

struct Inverse {
  torch::Tensor matrix;   // symmetric to the bit
  int raised = 0;         // how often the damping had to be multiplied by ten
  bool given_up = false;  // it is the identity
};

// (factor + damping I)^-1 of a symmetric matrix, by a Cholesky factorisation. As long as that is not positive
// definite the damping is multiplied by ten, six times at most; then the result is the identity.
Inverse inverse_of(const torch::Tensor& factor, double damping);

}  // namespace dear::systems::kfac
