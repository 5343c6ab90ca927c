#include "dear/systems/train_command/pass_recorder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <c10/core/Allocator.h>

namespace dear::train_command {
namespace pass_recorder {

// Flops and transfers are counted from this.
struct Shape {
  std::vector<std::int64_t> sizes;
  double elements = 0;
  const void* storage = nullptr;
};

}  // namespace pass_recorder

namespace {

using pass_recorder::Shape;

constexpr double kOfItsOwn = 0.05;  // of what an operator moves: less is bookkeeping of what it calls

thread_local PassRecorder* recording = nullptr;

void add_shape(const torch::Tensor& tensor, std::vector<Shape>& shapes) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  shapes.push_back({.sizes = tensor.sizes().vec(),
                    .elements = static_cast<double>(tensor.numel()),
                    .storage = tensor.storage().unsafeGetStorageImpl()});
}

// Returns the shapes of the last `count` values: a boxed call brings its caller's whole stack.
std::vector<Shape> shapes_of(c10::ArrayRef<const c10::IValue> values, std::size_t count) {
  values = values.slice(values.size() - std::min(count, values.size()));
  std::vector<Shape> shapes;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) add_shape(value.toTensor(), shapes);
    if (value.isTensorList())
      for (const torch::Tensor& tensor : value.toTensorVector()) add_shape(tensor, shapes);
  }
  return shapes;
}

double elements_of(const std::vector<Shape>& shapes) {
  double sum = 0;
  for (const Shape& shape : shapes) sum += shape.elements;
  return sum;
}

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

// The factor of a product whose last dimension is summed over; -1 for what is no product.
int factor_of_product(std::string_view name) {
  constexpr std::array kFirst = {"aten::mm",     "aten::bmm",           "aten::mv",         "aten::dot",
                                 "aten::linear", "aten::mkldnn_linear", "aten::_mkl_linear"};
  constexpr std::array kSecond = {"aten::addmm", "aten::baddbmm", "aten::addmv", "aten::baddbmm_",
                                  "aten::addmm_"};
  if (std::find(kFirst.begin(), kFirst.end(), name) != kFirst.end()) return 0;
  if (std::find(kSecond.begin(), kSecond.end(), name) != kSecond.end()) return 1;
  return -1;
}

bool is_convolution(std::string_view name) {
  constexpr std::array kParts = {"convolution", "::conv1d", "::conv2d",      "::conv3d",
                                 "_conv2d",     "_conv3d",  "conv_transpose"};
  return std::any_of(kParts.begin(), kParts.end(), [&](const char* part) { return has(name, part); });
}

bool is_attention(std::string_view name) { return has(name, "dot_product") || has(name, "flash_attention"); }

bool is_recurrent(std::string_view name) { return has(name, "rnn_layer"); }

// Whether operations may bound it, rather than transfers. What it calls is a part of it.
bool computes(std::string_view name, std::size_t inputs) {
  if (factor_of_product(name) >= 0) return inputs > static_cast<std::size_t>(factor_of_product(name));
  const std::size_t least = has(name, "backward") || is_recurrent(name) ? 3 : 2;
  return (is_convolution(name) || is_attention(name) || is_recurrent(name)) && inputs >= least;
}

// Returns the kernel of an operator that computes. A multiply-add is two operations; names and arguments are
// those of ATen.
zoo::Kernel computing_kernel(std::string_view name, const std::vector<Shape>& in,
                             const std::vector<Shape>& out) {
  zoo::Kernel kernel{.kind = zoo::Kind::matmul, .flops = 0, .moved = elements_of(in) + elements_of(out)};
  const bool backward = has(name, "backward");
  const auto last_of = [](const Shape& shape) {
    return static_cast<double>(shape.sizes.empty() ? 1 : shape.sizes.back());
  };
  if (const int factor = factor_of_product(name); factor >= 0) {
    kernel.flops = 2 * elements_of(out) * last_of(in[static_cast<std::size_t>(factor)]);
  } else if (is_convolution(name)) {
    kernel.kind = zoo::Kind::convolution;
    const Shape& weight = in[backward ? 2 : 1];
    const double products =
        weight.elements / static_cast<double>(std::max<std::int64_t>(1, weight.sizes.at(0)));
    const double gradients = backward ? std::min<double>(2, static_cast<double>(out.size())) : 1;
    kernel.flops = 2 * (backward ? in[0].elements : elements_of(out)) * products * gradients;
  } else if (is_attention(name)) {  // queries times keys, probabilities times values; backward five products
    const Shape &query = in[backward ? 1 : 0], &key = in[backward ? 2 : 1];
    const double length = static_cast<double>(key.sizes.size() > 1 ? key.sizes[key.sizes.size() - 2] : 1);
    kernel.flops = (backward ? 10 : 4) * query.elements * length;
  } else {
    kernel.flops = (backward ? 4 : 2) * (in[1].elements + in[2].elements) * in[0].elements / last_of(in[0]);
  }
  return kernel;
}

}  // namespace

class PassRecorder::Memory : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*pointer*/, std::int64_t bytes, std::size_t /*allocated*/,
                         std::size_t /*reserved*/, c10::Device /*device*/) override {
    bytes_ += bytes;
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  [[nodiscard]] std::int64_t take() { return std::exchange(bytes_, 0); }

 private:
  std::int64_t bytes_ = 0;
};

// An operator under way, or the derivation of one.
struct PassRecorder::Operator : at::ObserverContext {
  Operator* outer = nullptr;
  bool computes = false;
  bool inside = false;  // of one that computes
  double moved = 0;     // elements, by those that it has called
  std::vector<pass_recorder::Shape> inputs;
};

PassRecorder::PassRecorder(const std::vector<std::pair<std::string, torch::Tensor>>& parameters)
    : memory_(std::make_shared<Memory>()) {
  for (const auto& [name, tensor] : parameters)
    name_of_.emplace(tensor.storage().unsafeGetStorageImpl(), name);
}

PassRecorder::~PassRecorder() { ends(); }

void PassRecorder::forward_begins() {
  recording = this;
  watches_memory_ = std::make_unique<c10::DebugInfoGuard>(c10::DebugInfoKind::PROFILER_STATE, memory_);
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(operator_begins, operator_ends)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

void PassRecorder::backward_begins() {
  take_memory();
  watches_memory_.reset();
  backward_ = true;
}

void PassRecorder::ends() {
  if (callback_) at::removeCallback(*callback_);
  callback_.reset();
  watches_memory_.reset();
  if (recording == this) recording = nullptr;
}

std::unique_ptr<at::ObserverContext> PassRecorder::operator_begins(const at::RecordFunction& function) {
  if (recording == nullptr) return nullptr;
  auto mine = std::make_unique<Operator>();
  recording->begin(function, *mine);
  return mine;
}

void PassRecorder::operator_ends(const at::RecordFunction& function, at::ObserverContext* context) {
  if (recording != nullptr && context != nullptr) recording->end(function, static_cast<Operator&>(*context));
}

void PassRecorder::begin(const at::RecordFunction& function, Operator& mine) {
  mine.outer = innermost_;
  innermost_ = &mine;
  mine.inside = mine.outer != nullptr && (mine.outer->inside || mine.outer->computes);
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    const auto found = read_at_.find(function.seqNr());
    if (found != read_at_.end()) derived_ = found->second;
    return;
  }
  mine.inputs = shapes_of(function.inputs(), function.num_inputs());
  mine.computes = !mine.inside && computes(function.name(), mine.inputs.size());
  if (backward_) return;
  for (const Shape& input : mine.inputs) {
    const auto found = name_of_.find(input.storage);
    if (found == name_of_.end() || (!reads_.empty() && reads_.back() == found->second)) continue;
    take_memory();
    reads_.push_back(found->second);
  }
  if (function.seqNr() >= 0) read_at_[function.seqNr()] = reads_.size();
}

void PassRecorder::end(const at::RecordFunction& function, Operator& mine) {
  innermost_ = mine.outer;
  if (mine.inside) return;
  const std::string_view name = function.name();
  const std::vector<c10::IValue>& values = function.outputs();
  const std::vector<Shape> outputs =
      shapes_of(c10::ArrayRef<const c10::IValue>(values.data(), values.size()), function.num_outputs());
  const bool views = std::all_of(outputs.begin(), outputs.end(), [&](const Shape& output) {
    return std::any_of(mine.inputs.begin(), mine.inputs.end(),
                       [&](const Shape& input) { return input.storage == output.storage; });
  });
  const auto add = [&](const zoo::Kernel& kernel) {
    kernels_.push_back(
        {.kernel = kernel, .read = backward_ ? derived_ : reads_.size(), .backward = backward_});
  };
  double moved = 0;
  if (mine.computes) {
    add(computing_kernel(name, mine.inputs, outputs));
    moved = kernels_.back().kernel.moved;
  } else if (!outputs.empty() && (!views || name.ends_with("_")) && !has(name, "empty") &&
             !has(name, "detach")) {
    // Counts what it moves beyond what those move that it calls; of a mere call of another there is nothing.
    moved = elements_of(mine.inputs) + elements_of(outputs);
    const double own = moved - mine.moved;
    if (own > kOfItsOwn * moved) add({.kind = zoo::Kind::memory, .flops = 0, .moved = own});
  }
  if (mine.outer != nullptr) mine.outer->moved += std::max(moved, mine.moved);
}

void PassRecorder::take_memory() { allocated_.emplace_back(reads_.size(), memory_->take()); }

std::vector<PassRecorder::LayerKernels> PassRecorder::counted_in(Workload& workload) const {
  std::map<std::string, TensorId> id_of;
  for (std::size_t tensor = 0; tensor < workload.tensors.size(); ++tensor)
    id_of[workload.tensors[tensor].name] = static_cast<TensorId>(tensor);
  // The layer after so many reads: of several that share a tensor, the next one in forward order.
  std::vector<std::size_t> layer_after = {0};
  for (const std::string& name : reads_) {
    const std::size_t current = layer_after.back();
    layer_after.push_back(current);
    const auto id = id_of.find(name);
    if (id == id_of.end()) continue;  // a frozen one
    for (std::size_t step = 0; step < workload.layers.size(); ++step) {
      const std::size_t layer = (current + step) % workload.layers.size();
      const std::vector<TensorId>& tensors = workload.layers[layer].tensors;
      if (std::find(tensors.begin(), tensors.end(), id->second) == tensors.end()) continue;
      layer_after.back() = layer;
      break;
    }
  }
  std::vector<LayerKernels> layers(workload.layers.size());
  for (const Kernel& one : kernels_) {
    LayerKernels& layer = layers[layer_after[one.read]];
    (one.backward ? layer.backward : layer.forward).push_back(one.kernel);
  }
  for (Layer& layer : workload.layers) layer.activation_bytes = 0;
  for (const auto& [read, bytes] : allocated_) workload.layers[layer_after[read]].activation_bytes += bytes;
  // What a layer frees of another's is no debt of its own.
  std::int64_t owed = 0;
  for (auto layer = workload.layers.rbegin(); layer != workload.layers.rend(); ++layer) {
    layer->activation_bytes += owed;
    owed = std::min<std::int64_t>(0, layer->activation_bytes);
    layer->activation_bytes -= owed;
  }
  return layers;
}

}  // namespace dear::train_command
