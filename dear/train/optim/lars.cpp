#include "dear/train/optim/lars.h"

#include <algorithm>
#include <stdexcept>

namespace dear {

LARS::LARS(const Groups& groups, LARSOptions defaults) : TensorNormOptimizerOf(groups, defaults) {
  if (!(defaults.lr() >= 0) || !(defaults.momentum() >= 0) || !(defaults.weight_decay() >= 0) ||
      !(defaults.eps() >= 0) || !(defaults.trust_coefficient() > 0) ||
      (defaults.nesterov() && defaults.momentum() == 0))
    throw std::invalid_argument(
        "LARS: lr, momentum, weight_decay and eps must be at least 0, trust_coefficient above 0, and "
        "nesterov needs momentum");
}

std::vector<torch::Tensor> LARS::propose(const torch::Tensor& part,
                                         const torch::optim::OptimizerOptions& /*options*/,
                                         TensorNormState& state) {
  TORCH_CHECK(!part.grad().is_sparse(), "LARS takes no sparse gradients");
  ++state.step;
  return {part.detach(), part.grad()};
}

void LARS::apply(torch::Tensor& part, const torch::optim::OptimizerOptions& options, TensorNormState& state,
                 const std::vector<torch::Tensor>& proposed, const std::vector<double>& norms) {
  const auto& mine = static_cast<const LARSOptions&>(options);
  const double inside = mine.decay() == WeightDecay::scaled ? mine.weight_decay() : 0;
  double ratio = 1;
  if (mine.adapt() && norms[0] != 0 && norms[1] != 0) {
    ratio = mine.trust_coefficient() * norms[0] / (norms[1] + inside * norms[0] + mine.eps());
    if (mine.larc()) ratio = mine.lr() > 0 ? std::min(ratio / mine.lr(), 1.0) : 1.0;
  }
  decay_outside(part, mine);
  torch::Tensor update = proposed[1];
  if (inside != 0) update = update.add(part, inside);
  update = update * ratio;
  if (mine.momentum() != 0) {
    torch::Tensor& buffer = state.vector_like("momentum_buffer", part);
    buffer.mul_(mine.momentum()).add_(update);
    update = mine.nesterov() ? update.add(buffer, mine.momentum()) : buffer;
  }
  part.add_(update, -mine.lr());
}

}  // namespace dear
