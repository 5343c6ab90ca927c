#pragma once

// The names that the C++ of README.md and docs/*.md uses and does not declare: a small job of regression.
// Included by the source that write_programs.py writes.

#include <cstdint>
#include <cstdio>
#include <dear/train/data_parallel/data_parallel.h>
#include <exception>
#include <memory>
#include <vector>

#include <torch/optim/serialize.h>
#include <torch/torch.h>

namespace documented {

struct Batch {
  torch::Tensor data;
  torch::Tensor target;
};

inline torch::nn::Sequential model{nullptr};
inline std::unique_ptr<std::vector<Batch>> loader;
inline std::unique_ptr<std::vector<std::vector<Batch>>> steps;  // each of some micro-batches
inline std::unique_ptr<torch::optim::AdamW> optimizer;

inline torch::Tensor criterion(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

// An optimiser of a program's own, as docs/training_optimisers.md has it: of matrices, whose rows it makes
// equally long.
struct MuonOptions : torch::optim::OptimizerCloneableOptions<MuonOptions> {
  MuonOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
};
struct MuonState : torch::optim::OptimizerCloneableParamState<MuonState> {
  TORCH_ARG(torch::Tensor, momentum);

 public:
  void serialize(torch::serialize::InputArchive& archive) override { archive.read("momentum", momentum()); }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    archive.write("momentum", momentum());
  }
};
struct Muon : torch::optim::Optimizer {
  Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups, MuonOptions defaults)
      : Optimizer(groups, std::make_unique<MuonOptions>(defaults)) {}
  torch::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (const auto& group : param_groups_) {
      for (torch::Tensor matrix : group.params()) {
        auto& state = state_[matrix.unsafeGetTensorImpl()];
        if (!state) {
          auto fresh = std::make_unique<MuonState>();
          fresh->momentum(torch::zeros_like(matrix));
          state = std::move(fresh);
        }
        torch::Tensor& momentum = static_cast<MuonState&>(*state).momentum();
        momentum.mul_(0.9).add_(matrix.grad());
        matrix.sub_(static_cast<const MuonOptions&>(group.options()).lr() * momentum /
                    (momentum.norm(2, 1, true) + 1e-7));
      }
    }
    return {};
  }
};
inline std::vector<torch::optim::OptimizerParamGroup> groups_of_matrices;
inline std::vector<torch::Tensor> all_other_tensors;

inline int failures = 0;
inline int learned = 0;

inline Batch make_batch() {
  const torch::Tensor data = torch::randn({32, 4});
  return {.data = data, .target = data.sum(1, true)};
}

inline void make_job() {
  constexpr int kSteps = 40;
  torch::manual_seed(1);
  model = torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
  optimizer = std::make_unique<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-2));
  groups_of_matrices.clear();
  groups_of_matrices.emplace_back(std::vector<torch::Tensor>());
  all_other_tensors.clear();
  for (const torch::Tensor& tensor : model->parameters())
    (tensor.dim() > 1 ? groups_of_matrices.front().params() : all_other_tensors).push_back(tensor);
  loader = std::make_unique<std::vector<Batch>>();
  steps = std::make_unique<std::vector<std::vector<Batch>>>();
  for (int step = 0; step < kSteps; ++step) {
    loader->push_back(make_batch());
    steps->push_back({make_batch(), make_batch()});
    if (step % 2 == 0) steps->back().pop_back();
  }
}

inline double loss() {
  const torch::NoGradGuard no_grad;
  double sum = 0;
  for (const Batch& batch : *loader)
    sum += criterion(model->forward(batch.data), batch.target).item<double>();
  return sum / static_cast<double>(loader->size());
}

// Runs the block that stands at `place`. What it throws, and a loss that is not finite or larger than before,
// is a failure.
inline void run(const char* place, void (*block)()) {
  make_job();
  const double before = loss();
  try {
    block();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", place, error.what());
    ++failures;
    return;
  }
  const double after = loss();
  std::printf("%s: loss %.4f -> %.4f\n", place, before, after);
  if (!(after <= before)) ++failures;
  if (after < before) ++learned;
}

// The exit code: 0 when no block failed, and some trained.
inline int result() { return failures == 0 && learned > 0 ? 0 : 1; }

}  // namespace documented
