#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

#include "dear/systems/pipeline/sampled.h"

namespace dear::systems::pipeline {

// The backward pass of a stage for a micro-batch in two parts: gradients of what arrived, then those of
// parameters, computed later by what the first part kept (zero bubble; Qi et al. 2024, arXiv 2401.10241).
//
// An operation through which gradients pass to what arrived computes those alone in the first part, which
// keeps the gradient that reached it; in the second it computes those of its weights alone. So both together
// cost one backward pass. Where operations share a weight, or have hooks of a program, the second part is a
// pass through the whole stage instead, with the same gradients.
//
// One thread calls. Errors are those of autograd.
class Backward {
 public:
  // `roots` are tensors that the stage made, with their gradients; `leaves` are what arrived.
  Backward(Tensors roots, Tensors gradients, Tensors leaves);
  Backward(Backward&&) noexcept;
  Backward& operator=(Backward&&) noexcept;
  ~Backward();

  // By leaf; not defined where no root depends on it.
  Tensors input_gradients();
  // Once, after input_gradients(): adds gradients of parameters to those that they have.
  void weight_gradients();

 private:
  // An operation on the way from roots to leaves with what it reads beside that way.
  struct Passed {
    decltype(torch::autograd::Edge::function) node;
    torch::autograd::edge_list beside;
    Tensors gradients{};  // that reached it; defined by input_gradients()
  };
  void find();

  Tensors roots_, gradients_, leaves_;
  std::vector<std::shared_ptr<Passed>> passed_;
  torch::autograd::edge_list beside_;  // of roots that depend on no leaf, with their gradients
  Tensors of_beside_;
  Tensors parameters_;       // that roots depend on
  bool as_a_whole_ = false;  // the second part
};

}  // namespace dear::systems::pipeline
