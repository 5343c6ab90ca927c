#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/group.h"
#include "dear/train/autograd/gradient_arrivals.h"
#include "dear/train/model/model_scan.h"

namespace dear::train {

// [Note: the first step] Until the first step() the program runs as it is, observed: the order in which
// operators first read parameters becomes the order of layers (rank 0's, on every rank), and the number of
// times that a parameter's gradient arrives is how many backward passes make one step. Then the engine is
// made, and every gradient of that first iteration is reduced at once; from the second on, a layer's
// gradients go as soon as they have all arrived.
//
// One that got no gradient in the first iteration may get one later, so nothing that holds it may be sent
// before step(). Such parameters form layers of their own, first in forward order, so that their bucket is
// the last to be reduced and holds up no other. What is done with their gradients: [Note: unused parameters].

// Keeps what the first iteration teaches. Parameters are given by their index.
class Learning {
 public:
  explicit Learning(std::size_t parameters)
      : seen_(parameters), gradients_(parameters), sparse_(parameters) {}

  // An operator reads the parameter. From any thread.
  void read(std::size_t parameter);
  [[nodiscard]] std::vector<std::size_t> first_uses();  // the parameters that were read, in that order
  // Notes the parameter's gradient. Whether it is the same tensor as at the last call: another one means that
  // the program dropped the first one.
  bool same_gradient(std::size_t parameter, const torch::Tensor& gradient);

  struct Layers {
    std::vector<std::size_t> order;  // parameters by first use
    std::vector<LayerId> layer_of;   // by parameter; numbered in forward order
    std::vector<bool> sparse;        // by parameter: its gradient came sparse, on some rank
  };
  // Returns one rank's layers on every rank: the first of those that used most parameters. All ranks call it
  // together. Neighbours in the order of use that
  // belong to one module are a layer: a module may use parameters of its own before and after a child.
  [[nodiscard]] Layers layers(const Group& group, const std::vector<TrainedParameter>& parameters,
                              const autograd::GradientArrivals& arrivals) const;

  // Returns the layers of other parameters than those of `before`: `was[i]` is the index that parameters[i]
  // had there. What stayed keeps its place. A newcomer comes before the one that is registered after it, in a
  // layer with newcomers of its module.
  [[nodiscard]] static Layers with_newcomers(const Layers& before,
                                             const std::vector<std::optional<std::size_t>>& was,
                                             const std::vector<TrainedParameter>& parameters);

 private:
  std::mutex mutex_;
  std::vector<std::size_t> first_uses_;  // parameters in the order of their first use
  std::vector<bool> seen_;
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::vector<std::optional<WeakTensor>> gradients_;  // weak, so that no other tensor gets the address
  std::vector<bool> sparse_;
};

}  // namespace dear::train
