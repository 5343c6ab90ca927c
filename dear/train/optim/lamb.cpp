#include "dear/train/optim/lamb.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace dear {

LAMB::LAMB(const Groups& groups, LAMBOptions defaults) : TensorNormOptimizerOf(groups, defaults) {
  const auto [beta1, beta2] = defaults.betas();
  if (!(defaults.lr() >= 0) || !(defaults.eps() >= 0) || !(defaults.weight_decay() >= 0) ||
      !(beta1 >= 0 && beta1 < 1) || !(beta2 >= 0 && beta2 < 1) || !(defaults.max_norm() > 0) ||
      !(defaults.max_ratio() > 0))
    throw std::invalid_argument(
        "LAMB: lr, eps and weight_decay must be at least 0, betas in [0, 1), max_norm and max_ratio above 0");
}

std::vector<torch::Tensor> LAMB::propose(const torch::Tensor& part,
                                         const torch::optim::OptimizerOptions& options,
                                         TensorNormState& state) {
  const auto& mine = static_cast<const LAMBOptions&>(options);
  const torch::Tensor& gradient = part.grad();
  TORCH_CHECK(!gradient.is_sparse(), "LAMB takes no sparse gradients");
  const auto [beta1, beta2] = mine.betas();
  torch::Tensor& average = state.vector_like("exp_avg", part);
  torch::Tensor& squares = state.vector_like("exp_avg_sq", part);
  ++state.step;
  average.mul_(beta1).add_(gradient, 1 - beta1);
  squares.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
  const auto correction = [&](double beta) {
    return mine.bias_correction() ? 1 - std::pow(beta, static_cast<double>(state.step)) : 1.0;
  };
  torch::Tensor divisor = squares.sqrt();
  divisor.div_(std::sqrt(correction(beta2))).add_(mine.eps());
  torch::Tensor update = average / correction(beta1);
  update.div_(divisor);
  if (mine.weight_decay() != 0 && mine.decay() == WeightDecay::scaled)
    update.add_(part.detach(), mine.weight_decay());
  return {part.detach(), update};
}

void LAMB::apply(torch::Tensor& part, const torch::optim::OptimizerOptions& options,
                 TensorNormState& /*state*/, const std::vector<torch::Tensor>& proposed,
                 const std::vector<double>& norms) {
  const auto& mine = static_cast<const LAMBOptions&>(options);
  const double norm = std::min(norms[0], mine.max_norm());
  double ratio = 1;
  if (mine.adapt() && norm != 0 && norms[1] != 0) ratio = std::min(norm / norms[1], mine.max_ratio());
  decay_outside(part, mine);
  part.add_(proposed[1], -mine.lr() * ratio);
}

}  // namespace dear
