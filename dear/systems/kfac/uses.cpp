#include "dear/systems/kfac/uses.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <ATen/record_function.h>

namespace dear::systems::kfac {

struct ObservedLayers {
  std::weak_ptr<UseListener> listener;
  std::unordered_map<const c10::TensorImpl*, std::size_t> layer_of;  // by weight
};

namespace {

// libtorch calls a plain function back, so there is one table for the process. The callback is registered
// once, and disabled while no observer is enabled; then operators cost what they cost without it.
struct Table {
  std::shared_mutex mutex;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
  std::vector<std::shared_ptr<ObservedLayers>> enabled;
};

Table& table() {
  static Table instance;
  return instance;
}

enum class Operator : std::uint8_t { linear, addmm, matmul, conv2d };

std::optional<Operator> operator_of(std::string_view name) {
  constexpr std::string_view kPrefix = "aten::";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  if (name == "linear") return Operator::linear;
  if (name == "addmm") return Operator::addmm;
  if (name == "matmul") return Operator::matmul;
  if (name == "conv2d") return Operator::conv2d;
  return std::nullopt;
}

// The use of a layer by an operator that is under way.
struct Use : at::ObserverContext {
  std::shared_ptr<ObservedLayers> observed;
  std::size_t layer = 0;
  torch::Tensor input;
  std::optional<Patches> patches;
};

thread_local bool within_use = false;  // of the operators that it calls

std::array<std::int64_t, 2> two_of(const c10::IValue& value) {
  const auto list = value.toIntVector();
  return {list.front(), list.back()};
}

// conv2d(input, weight, bias, stride, padding, dilation, groups), where the padding may be a word.
Patches patches_of(c10::ArrayRef<const c10::IValue> inputs, const torch::Tensor& weight) {
  Patches patches{.stride = two_of(inputs[3]), .dilation = two_of(inputs[5])};
  if (!inputs[4].isString()) {
    patches.before = patches.after = two_of(inputs[4]);
  } else if (inputs[4].toStringRef() == "same") {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t all = patches.dilation[i] * (weight.size(2 + static_cast<std::int64_t>(i)) - 1);
      patches.before[i] = all / 2;
      patches.after[i] = all - all / 2;
    }
  }
  return patches;
}

// The parameter of which this is the transpose, as the C++ modules make it.
torch::Tensor transposed_of(const torch::Tensor& tensor) {
  if (tensor.dim() != 2 || !tensor.is_view()) return {};
  const torch::Tensor base(tensor._base());
  const bool is_transpose = base.dim() == 2 && tensor.size(0) == base.size(1) &&
                            tensor.size(1) == base.size(0) && tensor.stride(0) == base.stride(1) &&
                            tensor.stride(1) == base.stride(0) &&
                            tensor.storage_offset() == base.storage_offset();
  return is_transpose ? base : torch::Tensor();
}

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& function) {
  if (within_use || !at::GradMode::is_enabled()) return nullptr;
  const std::optional<Operator> which = operator_of(function.name());
  if (!which) return nullptr;
  // Called from a script, an operator shows the interpreter's whole stack, of which its inputs are the last.
  c10::ArrayRef<const c10::IValue> inputs = function.inputs();
  inputs = inputs.slice(inputs.size() - std::min(function.num_inputs(), inputs.size()));
  const std::size_t at = *which == Operator::addmm ? 1 : 0;  // of the input, before the weight
  if (inputs.size() < at + 2 || !inputs[at].isTensor() || !inputs[at + 1].isTensor()) return nullptr;
  const bool transposed = *which == Operator::addmm || *which == Operator::matmul;
  const torch::Tensor weight =
      transposed ? transposed_of(inputs[at + 1].toTensor()) : inputs[at + 1].toTensor();
  if (!weight.defined()) return nullptr;
  Table& all = table();
  const std::shared_lock lock(all.mutex);
  for (const auto& observed : all.enabled) {
    const auto found = observed->layer_of.find(weight.unsafeGetTensorImpl());
    if (found == observed->layer_of.end()) continue;
    auto use = std::make_unique<Use>();
    use->observed = observed;
    use->layer = found->second;
    use->input = inputs[at].toTensor().detach();
    if (*which == Operator::conv2d) use->patches = patches_of(inputs, weight);
    within_use = true;
    return use;
  }
  return nullptr;
}

// An operator that threw has no output.
void see(const Use& use, const at::RecordFunction& function) {
  const std::vector<c10::IValue>& outputs = function.outputs();
  if (outputs.empty() || !outputs.back().isTensor()) return;
  const torch::Tensor& output = outputs.back().toTensor();
  if (!output.requires_grad()) return;
  const std::shared_ptr<UseListener> listener = use.observed->listener.lock();
  if (!listener) return;
  try {
    if (!listener->input_seen(use.layer, use.patches, use.input)) return;
    output.register_hook(
        [observed = std::weak_ptr(use.observed), layer = use.layer](const torch::Tensor& gradient) {
          const auto still = observed.lock();
          const auto listening = still ? still->listener.lock() : nullptr;
          if (listening) listening->gradient_seen(layer, gradient);
        });
  } catch (...) {
    listener->keep(std::current_exception());
  }
}

void operator_ends(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* use = static_cast<Use*>(context);
  if (use == nullptr) return;
  within_use = false;
  see(*use, function);
}

}  // namespace

UseObserver::UseObserver(std::weak_ptr<UseListener> listener, const std::vector<MatrixLayer>& layers)
    : observed_(std::make_shared<ObservedLayers>()) {
  observed_->listener = std::move(listener);
  for (std::size_t i = 0; i < layers.size(); ++i)
    observed_->layer_of[layers[i].weight.unsafeGetTensorImpl()] = i;
}

UseObserver::~UseObserver() { disable(); }

void UseObserver::enable() {
  Table& all = table();
  const std::unique_lock lock(all.mutex);
  if (std::exchange(enabled_, true)) return;
  all.enabled.push_back(observed_);
  if (all.callback == at::INVALID_CALLBACK_HANDLE) {
    all.callback = at::addGlobalCallback(at::RecordFunctionCallback(operator_begins, operator_ends)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  } else if (all.enabled.size() == 1) {
    at::reenableCallback(all.callback);
  }
}

void UseObserver::disable() {
  Table& all = table();
  const std::unique_lock lock(all.mutex);
  if (!std::exchange(enabled_, false)) return;
  std::erase(all.enabled, observed_);
  if (all.enabled.empty()) at::disableCallback(all.callback);
}

}  // namespace dear::systems::kfac
