#pragma once

#include <limits>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "dear/train/optim/tensor_norm_optimizer.h"

namespace dear {

// Options of a parameter group of LAMB.
struct LAMBOptions : public TensorNormOptions<LAMBOptions> {
  LAMBOptions(double lr = 1e-3) : lr_(lr) {}
  TORCH_ARG(double, lr);
  using betas_t = std::tuple<double, double>;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0.01;
  TORCH_ARG(WeightDecay, decay) = WeightDecay::scaled;
  // Whether the moments are divided by 1 - beta^t. The paper does; some implementations leave it out.
  TORCH_ARG(bool, bias_correction) = true;
  // Whether updates are scaled by the trust ratio. Biases and norm layers are usually in a group without it,
  // and without weight decay; the update is then that of Adam.
  TORCH_ARG(bool, adapt) = true;
  // The norm of a parameter counts as at most this (some implementations: 10), and the ratio is at most that
  // (some: 1).
  TORCH_ARG(double, max_norm) = std::numeric_limits<double>::infinity();
  TORCH_ARG(double, max_ratio) = std::numeric_limits<double>::infinity();
};

// LAMB (You et al., ICLR 2020, arXiv 1904.00962): the update of Adam, plus weight_decay * parameter, is
// scaled for each tensor by its trust ratio |parameter| / |update|, which is 1 where one of them is zero.
// State of a parameter: exp_avg and exp_avg_sq. std::invalid_argument for an option out of range.
class LAMB : public TensorNormOptimizerOf<LAMB, LAMBOptions> {
 public:
  explicit LAMB(const Groups& groups, LAMBOptions defaults = {});
  explicit LAMB(std::vector<torch::Tensor> parameters, LAMBOptions defaults = {})
      : LAMB(Groups{torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  [[nodiscard]] std::size_t norms() const override { return 2; }
  std::vector<torch::Tensor> propose(const torch::Tensor& part, const torch::optim::OptimizerOptions& options,
                                     TensorNormState& state) override;
  void apply(torch::Tensor& part, const torch::optim::OptimizerOptions& options, TensorNormState& state,
             const std::vector<torch::Tensor>& proposed, const std::vector<double>& norms) override;
};

}  // namespace dear
