#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "dear/systems/moe/expert_group.h"
#include "dear/train/model/model.h"

namespace dear {

namespace systems::moe {
class MixturePass;
}

// Under what all-to-alls of mixtures go. Results have the same bits.
enum class ExpertOverlap : std::uint8_t {
  none,     // each is waited for where it is launched
  experts,  // those of one part of the batch go under the experts of others
  lancet    // in the backward pass under weight gradients, too (Lancet, Jiang et al. 2024, arXiv 2404.19429)
};
[[nodiscard]] ExpertOverlap find_expert_overlap(const std::string& name);  // ConfigError that lists them

// All ranks give the same options.
struct MixtureOptions {
  std::int64_t width = 0, hidden = 0;  // of a token, and within an expert
  std::int64_t experts = 0;            // of all ranks, which hold as many each
  // "switch": one expert, weighted by its probability (Fedus et al. 2022, arXiv 2101.03961). "top2": two,
  // whose weights add up to 1. "batch-prioritized": one, and tokens whose probability is largest take their
  // places first (Riquelme et al. 2021, arXiv 2106.05974). The others give places token by token, both
  // choices of a token before the next. Of equal probabilities the first expert wins.
  std::string gate = "switch";
  // Each expert takes int(capacity_factor * ceil(tokens / experts)) choices of the tokens of each rank's
  // batch. Others are dropped: they add nothing to the result.
  double capacity_factor = 1.25;
  int parts = 1;  // of the batch, which each of forward() works on one after another
  ExpertOverlap overlap = ExpertOverlap::none;
  std::uint64_t seed = 1;  // of the first parameters, whichever rank holds them
};
// Of this rank's tokens in forward passes that record for a backward pass.
struct MixtureStatistics {
  std::int64_t passes = 0, tokens = 0;
  std::vector<std::int64_t> by_expert;  // choices, before any are dropped
  std::int64_t dropped = 0;             // choices
};

// A layer of perceptrons without biases, the experts, of which each token visits the one or two that a gate
// chooses. They lie on the ranks of an ExpertGroup; tokens travel to their experts and back by all-to-alls of
// as many rows as there are. On the CPU, in fp32 or fp64.
//
//   auto ranks = std::make_shared<dear::ExpertGroup>(group);
//   dear::Mixture mixture({.width = 512, .hidden = 2048, .experts = 8, .parts = 2}, ranks);
//   x = x + mixture(norm(x));   // and the loss grows by 0.01 * mixture->balance_loss()
//
// The output, which tokens are dropped and all gradients are those of the uncut batch, to the bit, whatever
// `parts` and `overlap` are: parts are told which places those before took, batch-prioritized gates see the
// whole batch, and each weight gradient is one product over all rows. Gradients of experts are those of the
// mean of all ranks' losses, whole on their rank: nothing has to reduce them, and a DataParallel is given
// dense_model_of(). Every rank makes the same passes with batches of one size. Second derivatives are
// refused.
class MixtureImpl : public torch::nn::Module {
 public:
  // ConfigError for options that cannot be, MismatchError on every rank where they differ.
  MixtureImpl(MixtureOptions options, std::shared_ptr<ExpertGroup> ranks);

  // [batch, ..., width] -> likewise. ConfigError for another shape or type, fewer tokens than experts, a
  // batch that `parts` does not divide, and a gate that gave no finite numbers; it ends the group, for other
  // ranks wait for this one. MismatchError for batches of other sizes than the peers'.
  torch::Tensor forward(const torch::Tensor& x);

  // Forward in stages, for a stack of layers whose passes are cut, too: see mixture_pass.h.
  [[nodiscard]] std::unique_ptr<systems::moe::MixturePass> begin(std::int64_t samples,
                                                                 std::int64_t tokens_of_sample, int parts);

  [[nodiscard]] const MixtureOptions& options() const { return options_; }
  [[nodiscard]] const std::shared_ptr<ExpertGroup>& ranks() const { return ranks_; }
  [[nodiscard]] int choices() const { return options_.gate == "top2" ? 2 : 1; }
  // Those that lie on this rank alone.
  [[nodiscard]] std::vector<torch::Tensor> expert_parameters() const { return {inputs_, outputs_}; }
  // The load-balancing loss of Switch over this rank's batch in the last forward pass that records: experts
  // times the sum over experts of the share of choices times the mean probability; 1 where all are alike.
  [[nodiscard]] torch::Tensor balance_loss() const;
  [[nodiscard]] const MixtureStatistics& statistics() const { return statistics_; }

 private:
  friend class systems::moe::MixturePass;
  MixtureOptions options_;
  std::shared_ptr<ExpertGroup> ranks_;
  torch::Tensor gate_;     // "gate.weight", [experts, width]
  torch::Tensor inputs_;   // [experts here, hidden, width]
  torch::Tensor outputs_;  // [experts here, width, hidden]
  torch::Tensor balance_loss_;
  MixtureStatistics statistics_;
};
TORCH_MODULE(Mixture);

// The mixtures within a model, itself included, in the order of registration.
[[nodiscard]] std::vector<const MixtureImpl*> mixtures_of(const torch::nn::Module& model);
// The model without the experts: what a DataParallel trains. The module must live as long as the result.
[[nodiscard]] Model dense_model_of(const torch::nn::Module& model);
// Their tensors, for the optimiser that the DataParallel is given; and those of the experts, for one of the
// same class, which each rank steps after it.
[[nodiscard]] std::vector<torch::Tensor> dense_parameters_of(const torch::nn::Module& model);
[[nodiscard]] std::vector<torch::Tensor> expert_parameters_of(const torch::nn::Module& model);
// The model with the experts of all ranks in place of this rank's, copied: one process would have it. Every
// rank calls it.
[[nodiscard]] Model whole_model_of(const torch::nn::Module& model);

}  // namespace dear
