#include "dear/train/optim/tensor_norm_optimizer.h"

#include <cmath>

#include <torch/serialize/archive.h>

#include "dear/train/optim/exact_sum.h"

namespace dear {

torch::Tensor& TensorNormState::vector_like(const std::string& name, const torch::Tensor& tensor) {
  torch::Tensor& vector = vectors[name];
  if (!vector.defined()) vector = torch::zeros_like(tensor, at::MemoryFormat::Preserve);
  return vector;
}

void TensorNormState::serialize(torch::serialize::InputArchive& archive) {
  c10::IValue steps;
  archive.read("step", steps);
  step = steps.toInt();
  torch::serialize::InputArchive all;
  archive.read("vectors", all);
  vectors.clear();
  for (const std::string& name : all.keys()) all.read(name, vectors[name]);
}

void TensorNormState::serialize(torch::serialize::OutputArchive& archive) const {
  archive.write("step", c10::IValue(step));
  torch::serialize::OutputArchive all(archive.compilation_unit());
  for (const auto& [name, vector] : vectors) all.write(name, vector);
  archive.write("vectors", all);
}

TensorNormState& TensorNormOptimizer::state_of(const torch::Tensor& part) {
  auto& state = state_[part.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<TensorNormState>();
  return static_cast<TensorNormState&>(*state);
}

torch::Tensor TensorNormOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    const at::AutoGradMode grad_mode(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  for (const auto& group : param_groups_) {
    for (torch::Tensor parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      TensorNormState& state = state_of(parameter);
      const std::vector<torch::Tensor> proposed = propose(parameter, group.options(), state);
      std::vector<double> norms;
      for (const torch::Tensor& tensor : proposed) norms.push_back(std::sqrt(sum_of_squares(tensor).value()));
      apply(parameter, group.options(), state, proposed, norms);
    }
  }
  return loss;
}

}  // namespace dear
