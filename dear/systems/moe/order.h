#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

// The order in which autograd runs the backward pass of mixtures of experts, by the numbers of its nodes. Of
// the nodes that are ready autograd runs the one with the highest number, and numbers nodes as a thread makes
// them. Below all those numbers a range is reserved here: in it lie nodes that wait for an all-to-all, and
// above these nodes that compute a weight gradient, for which nothing of the backward pass waits. So a
// launched all-to-all is waited for once the weight gradients that are ready are computed (Lancet, arXiv
// 2404.19429, section 4.2). Numbers change an order and no result.
namespace dear::systems::moe {

// Called before this thread makes the nodes of a forward pass.
void reserve_numbers();

// The node that made `result` waits, in the backward pass, for an all-to-all: behind all weight gradients
// that are ready then. Of several that wait, the one made last comes first, as without this.
void wait_late(const torch::Tensor& result);

// The node that made `token` computes weight gradients: once nothing else is ready but what waits; or as soon
// as it can, where plain autograd computes them.
void compute_late(const torch::Tensor& token);
void compute_at_once(const torch::Tensor& token);

// While it lives, `entries` has what nodes do in passes on this thread, in order: "launch" and "wait" of
// all-to-alls, and "weight" in backward passes. One at a time on a thread.
class OrderLog {
 public:
  OrderLog();
  ~OrderLog();
  OrderLog(const OrderLog&) = delete;
  OrderLog& operator=(const OrderLog&) = delete;
  std::vector<std::string> entries;
};
void note(std::string_view what);

}  // namespace dear::systems::moe
