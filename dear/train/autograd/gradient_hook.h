#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <torch/csrc/autograd/variable.h>

namespace dear::autograd {

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

// The hooks of all parameters that are trained, each of which knows the number of its parameter.
class GradientHooks {
 public:
  // Called with a parameter's number, which changes meanwhile where `arrived` calls set().
  using Arrived = std::function<void(const std::size_t& parameter)>;
  static constexpr std::size_t kNone = ~std::size_t{0};  // of one that is trained no longer
  explicit GradientHooks(Arrived arrived) : arrived_(std::move(arrived)) {}

  // Sets what is trained; the number of a parameter is its place. A hook may call it: a parameter that stays
  // keeps its hook, and one of a parameter that goes is taken off at the next call.
  void set(const std::vector<at::Tensor>& parameters);
  void clear() { hooks_.clear(), retired_.clear(); }
  // Whether the parameter has a hook of these, also one to be taken off.
  [[nodiscard]] bool holds(const at::Tensor& parameter) const;

 private:
  struct Hook {
    const c10::TensorImpl* tensor;
    std::size_t parameter;
    std::optional<GradientHook> on_accumulator;
  };
  Arrived arrived_;
  std::unordered_map<const c10::TensorImpl*, std::unique_ptr<Hook>> hooks_;
  std::vector<std::unique_ptr<Hook>> retired_;
};

}  // namespace dear::autograd
