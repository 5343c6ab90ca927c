#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "dear/base/ids.h"
#include "dear/collective/group.h"
#include "dear/train/gradient_arrivals.h"
#include "dear/train/model_scan.h"

namespace dear::train {

// Keeps what the first iteration teaches, see [Note: the first step]. Parameters are given by their index.
class Learning {
 public:
  explicit Learning(std::size_t parameters) : seen_(parameters), gradients_(parameters) {}

  // An operator reads the parameter. From any thread.
  void read(std::size_t parameter);
  // Whether the parameter's gradient is the same tensor as at the last call. Another tensor means that the
  // program dropped the first one.
  bool same_gradient(std::size_t parameter, const torch::Tensor& gradient);

  struct Layers {
    std::vector<std::size_t> order;  // parameters by first use
    std::vector<LayerId> layer_of;   // by parameter; numbered in forward order
  };
  // Returns one rank's layers on every rank: the first of those that used most parameters. All ranks call it
  // together. Neighbours in the order of use that
  // belong to one module are a layer: a module may use parameters of its own before and after a child.
  [[nodiscard]] Layers layers(const Group& group, const std::vector<TrainedParameter>& parameters,
                              const GradientArrivals& arrivals) const;

 private:
  std::mutex mutex_;
  std::vector<std::size_t> first_uses_;  // parameters in the order of their first use
  std::vector<bool> seen_;
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::vector<std::optional<WeakTensor>> gradients_;  // weak, so that no other tensor gets the address
};

}  // namespace dear::train
