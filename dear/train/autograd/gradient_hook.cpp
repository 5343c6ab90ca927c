#include "dear/train/autograd/gradient_hook.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

namespace dear::autograd {
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

bool GradientHooks::holds(const at::Tensor& parameter) const {
  const c10::TensorImpl* tensor = parameter.unsafeGetTensorImpl();
  return hooks_.contains(tensor) || std::any_of(retired_.begin(), retired_.end(),
                                                [&](const auto& hook) { return hook->tensor == tensor; });
}

void GradientHooks::set(const std::vector<at::Tensor>& parameters) {
  retired_.clear();
  auto before = std::exchange(hooks_, {});
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const c10::TensorImpl* key = parameters[i].unsafeGetTensorImpl();
    std::unique_ptr<Hook>& hook = hooks_[key];
    if (const auto found = before.find(key); found != before.end()) {
      hook = std::move(found->second);
      before.erase(found);
      hook->parameter = i;
      continue;
    }
    hook = std::make_unique<Hook>(Hook{.tensor = key, .parameter = i, .on_accumulator = std::nullopt});
    hook->on_accumulator.emplace(parameters[i], [this, number = &hook->parameter] { arrived_(*number); });
  }
  for (auto& [key, hook] : before) {
    hook->parameter = kNone;
    retired_.push_back(std::move(hook));
  }
}

}  // namespace dear::autograd
