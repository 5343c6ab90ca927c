#pragma once

// The names that the C++ of README.md and docs/*.md uses and does not declare: a small job of regression.
// Included by the source that write_programs.py writes.

#include <cstdint>
#include <cstdio>
#include <dear/train/data_parallel.h>
#include <exception>
#include <memory>
#include <vector>

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
