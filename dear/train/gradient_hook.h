#pragma once

#include <cstdint>
#include <functional>

#include <torch/csrc/autograd/variable.h>

namespace dear::train {

// Calls `arrived` whenever autograd has added to the parameter's gradient, on the thread that runs the
// backward pass, as long as it lives.
class GradientHook {
 public:
  GradientHook(const at::Tensor& parameter, std::function<void()> arrived);
  ~GradientHook();
  // Whether the parameter has such a hook already.
  [[nodiscard]] static bool is_on(const at::Tensor& parameter);
  GradientHook(GradientHook&&) = default;
  GradientHook& operator=(GradientHook&&) = delete;

 private:
  // A std::shared_ptr before PyTorch 2.13, a c10::intrusive_ptr since. Kept alive, or the hook is lost.
  decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator_;
  std::uintptr_t key_;
};

}  // namespace dear::train
