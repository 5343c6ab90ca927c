#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "dear/systems/moe/mixture.h"
#include "dear/systems/train_command/gpt.h"

namespace dear::train_command {

struct MoeGptOptions {
  GptOptions gpt{};
  // Of each mixture, but for its width, hidden and seed. `parts` cut the batch.
  MixtureOptions mixture{};
  std::int64_t mixture_every = 2;  // blocks: the last of so many has a mixture in place of its perceptron
};

// A Gpt whose perceptrons are partly mixtures of experts, four times as wide within. With
// ExpertOverlap::lancet the forward pass is cut through the whole stack of blocks: while tokens and results
// of one part travel, attention, perceptrons and gates work on another, and the next block waits for the
// results of a part only where it works on that part. All weight gradients are nodes of their own, which the
// all-to-alls of the backward pass go under. Neither overlap nor parts change a bit of outputs and gradients.
class MoeGptImpl : public torch::nn::Module {
 public:
  MoeGptImpl(const MoeGptOptions& options, std::shared_ptr<ExpertGroup> ranks);

  // As Gpt's. The batch is a multiple of the parts.
  torch::Tensor forward(const torch::Tensor& characters);
  // The mean over mixtures of their load-balancing losses in the last forward pass.
  [[nodiscard]] torch::Tensor balance_loss() const;

 private:
  MoeGptOptions options_;
  torch::nn::Embedding token_embedding_{nullptr};
  torch::nn::Embedding position_embedding_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  torch::nn::LayerNorm final_norm_{nullptr};
};
TORCH_MODULE(MoeGpt);

// The number of parameters of such a model, with the experts of all ranks.
std::int64_t parameter_count(const MoeGptOptions& options);

}  // namespace dear::train_command
