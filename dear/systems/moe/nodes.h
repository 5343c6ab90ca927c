#pragma once

#include <torch/types.h>

#include "dear/systems/moe/exchange.h"
#include "dear/systems/moe/weights.h"

// The nodes of autograd of a mixture of experts: its all-to-alls, each cut where it is launched and where it
// is waited for, and the products of its experts. A token is a tensor of one element that makes the order of
// nodes: what takes it was launched by what made it.
namespace dear::systems::moe {

using ExchangeOfPart = c10::intrusive_ptr<Exchange>;

// A tensor for two, whose gradients are added in one order, whichever comes first.
std::pair<torch::Tensor, torch::Tensor> fork(const torch::Tensor& x);

// Launches the all-to-all of [tokens, width] to the experts; backward waits for the gradients. Returns a
// token.
torch::Tensor send_tokens(const torch::Tensor& x, const ExchangeOfPart& exchange);
// Waits for it: rows as Arriving has them; backward launches the gradients.
torch::Tensor take_tokens(const torch::Tensor& token, const ExchangeOfPart& exchange);
// Launches the all-to-all of what experts made of the rows; backward waits for its gradients. Returns a
// token.
torch::Tensor send_back(const torch::Tensor& made, const ExchangeOfPart& exchange);
// Waits for it, and adds up what came back of each token, by `weights`, [tokens, choices]; backward launches
// the gradients.
torch::Tensor take_back(const torch::Tensor& token, const torch::Tensor& weights,
                        const ExchangeOfPart& exchange);

// Products with the matrices of this rank's experts, [experts, outputs, inputs], for the parts of a batch.
// Their gradients are multiplied by `scale`.
class ExpertProductInParts {
 public:
  ExpertProductInParts(const torch::Tensor& matrices, double scale, When when);
  // Rows as Arriving has them, of so many inputs and outputs.
  [[nodiscard]] torch::Tensor operator()(int part, const std::shared_ptr<const Arriving>& arriving,
                                         const torch::Tensor& rows) const;

 private:
  SharedWeights weights_;
};

}  // namespace dear::systems::moe
