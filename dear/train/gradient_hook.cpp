#include "dear/train/gradient_hook.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

namespace dear::train {
namespace {

class PostHook : public torch::autograd::FunctionPostHook {
 public:
  explicit PostHook(std::function<void()> arrived) : arrived_(std::move(arrived)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    arrived_();
    return outputs;
  }

 private:
  std::function<void()> arrived_;
};

}  // namespace

GradientHook::GradientHook(const at::Tensor& parameter, std::function<void()> arrived)
    : accumulator_(torch::autograd::impl::grad_accumulator(parameter)),
      key_(accumulator_->add_post_hook(std::make_unique<PostHook>(std::move(arrived)))) {}

bool GradientHook::is_on(const at::Tensor& parameter) {
  const auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  if (!accumulator) return false;
  const auto& hooks = accumulator->post_hooks();
  return std::any_of(hooks.begin(), hooks.end(),
                     [](const auto& hook) { return dynamic_cast<const PostHook*>(hook.get()) != nullptr; });
}

GradientHook::~GradientHook() {
  if (accumulator_) accumulator_->del_post_hook(key_);
}

}  // namespace dear::train
