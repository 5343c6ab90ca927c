#pragma once

#include <functional>
#include <vector>

#include <torch/types.h>

namespace dear::train::testing {

// In one process, what ranks reduce: the gradients that backward(rank) leaves in the parameters, and that are
// taken away there, added rank by rank in fp32, divided by the ranks and rounded once, to the parameter's
// type. In fp32; undefined where no rank has one.
inline std::vector<torch::Tensor> mean_gradients(const std::vector<torch::Tensor>& parameters, int ranks,
                                                 const std::function<void(int rank)>& backward) {
  std::vector<torch::Tensor> means(parameters.size());
  for (int rank = 0; rank < ranks; ++rank) {
    backward(rank);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor& gradient = parameters[i].mutable_grad();
      if (!gradient.defined()) continue;
      if (!means[i].defined()) means[i] = torch::zeros(parameters[i].sizes());
      means[i] += gradient.to(torch::kFloat32);
      gradient.reset();
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (means[i].defined()) means[i] = (means[i] / ranks).to(parameters[i].scalar_type()).to(torch::kFloat32);
  return means;
}

}  // namespace dear::train::testing
