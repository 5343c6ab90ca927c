#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "dear/train/optim/tensor_norm_optimizer.h"

namespace dear {

// Options of a parameter group of LARS.
struct LARSOptions : public TensorNormOptions<LARSOptions> {
  LARSOptions(double lr = 0.1) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(bool, nesterov) = false;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(WeightDecay, decay) = WeightDecay::scaled;
  TORCH_ARG(double, trust_coefficient) = 0.001;
  TORCH_ARG(double, eps) = 0;  // added to the denominator of the trust ratio
  // LARC: a tensor's own learning rate is at most lr, where LARS multiplies both.
  TORCH_ARG(bool, larc) = false;
  // Whether updates are scaled by the trust ratio. Biases and norm layers are usually in a group without it,
  // and without weight decay; the update is then that of SGD.
  TORCH_ARG(bool, adapt) = true;
};

// LARS (You, Gitman, Ginsburg 2017, arXiv 1708.03888): SGD with momentum, where gradient + weight_decay *
// parameter is scaled for each tensor by its trust ratio, trust_coefficient * |parameter| / (|gradient| +
// weight_decay * |parameter| + eps); it is 1 where one of the norms is zero. The learning rate multiplies the
// momentum buffer, as in torch::optim::SGD; in the paper it is inside the buffer, which differs where it
// changes. State of a parameter: momentum_buffer. std::invalid_argument for an option out of range.
class LARS : public TensorNormOptimizerOf<LARS, LARSOptions> {
 public:
  explicit LARS(const Groups& groups, LARSOptions defaults = {});
  explicit LARS(std::vector<torch::Tensor> parameters, LARSOptions defaults = {})
      : LARS(Groups{torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  [[nodiscard]] std::size_t norms() const override { return 2; }
  std::vector<torch::Tensor> propose(const torch::Tensor& part, const torch::optim::OptimizerOptions& options,
                                     TensorNormState& state) override;
  void apply(torch::Tensor& part, const torch::optim::OptimizerOptions& options, TensorNormState& state,
             const std::vector<torch::Tensor>& proposed, const std::vector<double>& norms) override;
};

}  // namespace dear
