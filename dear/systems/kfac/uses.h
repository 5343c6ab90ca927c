#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "dear/systems/kfac/sums.h"

// Sees every operator of a forward pass that uses the weight of a layer, through at::RecordFunction: linear,
// what libtorch's C++ modules call in its place (addmm, or matmul, with the transposed weight), conv2d.
//
// [Note: uses] The input is known when the operator has run, and the gradient of its output when a backward
// pass has come to it. A use counts where gradients are recorded, in training mode. Autocasting and hooks of
// modules lie around the operator and change nothing here; operators within it are passed over. A graph that
// was compiled is not seen operator by operator.
namespace dear::systems::kfac {

class UseListener {
 public:
  virtual ~UseListener() = default;
  // On the thread of the operator; `layer` is an index into the layers that were given. Returns whether the
  // use counts: only then the gradient of its output is seen.
  virtual bool input_seen(std::size_t layer, const std::optional<Patches>& patches,
                          const torch::Tensor& input) = 0;
  // On the thread of the backward pass, whose caller gets what it throws.
  virtual void gradient_seen(std::size_t layer, const torch::Tensor& gradient) = 0;
  // Keeps what input_seen() threw: libtorch swallows exceptions there.
  virtual void keep(std::exception_ptr error) noexcept = 0;
};

struct ObservedLayers;

// Calls the listener for uses of these layers while it is enabled. A listener that is gone is passed over,
// also by graphs that were recorded before.
class UseObserver {
 public:
  UseObserver(std::weak_ptr<UseListener> listener, const std::vector<MatrixLayer>& layers);  // disabled
  ~UseObserver();
  UseObserver(const UseObserver&) = delete;
  UseObserver& operator=(const UseObserver&) = delete;

  void enable();
  void disable();

 private:
  std::shared_ptr<ObservedLayers> observed_;
  bool enabled_ = false;
};

}  // namespace dear::systems::kfac
