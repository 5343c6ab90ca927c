#include "dear/systems/kfac/inverse.h"

namespace dear::systems::kfac {

Inverse inverse_of(const torch::Tensor& factor, double damping) {
  constexpr int kTries = 6;
  Inverse result;
  for (; result.raised <= kTries; ++result.raised, damping *= 10) {
    torch::Tensor damped = factor.clone();
    damped.diagonal().add_(damping);
    const auto [lower, info] = at::linalg_cholesky_ex(damped);
    if (info.item<int>() != 0) continue;
    const torch::Tensor inverse = at::cholesky_inverse(lower);
    if (!inverse.isfinite().all().item<bool>()) continue;
    result.matrix = inverse.triu() + inverse.triu(1).t();
    return result;
  }
  result.raised = kTries;
  result.given_up = true;
  result.matrix = torch::eye(factor.size(0), factor.options());
  return result;
}

}  // namespace dear::systems::kfac
