#include "dear/systems/train_command/scripted_model.h"

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <unistd.h>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

namespace dear::train_command {
namespace {

// [Note: layers of a script] Layers are told apart by the operators that read their parameters, and by the
// moments at which gradients arrive. libtorch's graph executor, left to itself, gathers the operators of
// several layers into one node with one backward of its own: then their gradients arrive together, at its
// end. So the script is interpreted as it was written, operator by operator, which is what PyTorch does with
// a model that was not scripted.
using AsWritten = torch::jit::GraphOptimizerEnabledGuard;

std::shared_ptr<torch::nn::Module> mirror_of(const torch::jit::Module& script) {
  auto mirror = std::make_shared<torch::nn::Module>("scripted");
  for (const auto& [name, tensor] : script.named_parameters(/*recurse=*/false))
    mirror->register_parameter(name, tensor, tensor.requires_grad());
  for (const auto& [name, tensor] : script.named_buffers(/*recurse=*/false))
    mirror->register_buffer(name, tensor);
  for (const auto& [name, child] : script.named_children()) mirror->register_module(name, mirror_of(child));
  return mirror;
}

torch::jit::Module load(const std::string& path) {
  static_cast<void>(
      os::open_file(path));  // refuses what is no file, such as a pipe, which libtorch would wait for
  try {
    return torch::jit::load(path, torch::kCPU);
  } catch (const std::exception& error) {
    throw ConfigError(
        fmt::format("'{}' is no TorchScript that libtorch can load: write it with "
                    "torch.jit.save(torch.jit.script(model), FILE), or torch.jit.trace ({})",
                    path, reason_of(error)));
  }
}

torch::ScalarType scalar_type_of(const std::string& dtype) {
  if (dtype == "float32") return torch::kFloat32;
  if (dtype == "float64") return torch::kFloat64;
  if (dtype == "float16") return torch::kFloat16;
  if (dtype == "bfloat16") return torch::kBFloat16;
  if (dtype == "int64") return torch::kInt64;
  if (dtype == "int32") return torch::kInt32;
  if (dtype == "uint8") return torch::kUInt8;
  return torch::kBool;
}

torch::Tensor random_tensor(const ModelInput& input, std::int64_t range) {
  const torch::ScalarType type = scalar_type_of(input.dtype);
  if (torch::isFloatingType(type)) return torch::randn(input.sizes).to(type);
  const std::int64_t below = type == torch::kBool    ? 2
                             : type == torch::kUInt8 ? std::min<std::int64_t>(range, 256)
                                                     : range;
  return torch::randint(below, input.sizes, torch::kInt64).to(type);
}

template <typename Predicate>
std::vector<torch::Tensor> parameters_where(const torch::nn::Module& module, Predicate predicate) {
  std::vector<torch::Tensor> tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const torch::Tensor& tensor : module.parameters()) {
    if (predicate(tensor) && seen.insert(tensor.unsafeGetTensorImpl()).second) tensors.push_back(tensor);
  }
  return tensors;
}

void collect(const c10::IValue& value, std::vector<torch::Tensor>& outputs) {
  if (value.isTensor()) {
    const torch::Tensor& tensor = value.toTensor();
    if (tensor.defined() && tensor.is_floating_point() && tensor.requires_grad()) outputs.push_back(tensor);
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) collect(element, outputs);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) collect(element, outputs);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) collect(entry.value(), outputs);
  } else if (value.isObject()) {
    for (const c10::IValue& member : value.toObjectRef().slots()) collect(member, outputs);
  }
}

}  // namespace

std::string reason_of(const std::exception& error) {
  const auto* const own = dynamic_cast<const c10::Error*>(&error);
  std::istringstream text(own ? own->what_without_backtrace() : error.what());
  std::string first, reason;
  for (std::string line; std::getline(text, line);) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos) continue;
    line.erase(0, begin);
    if (first.empty()) first = line;
    // The message of the interpreter has the stack of the script first and then "RuntimeError: reason".
    const std::size_t kind = line.find("Error: ");
    if (kind != std::string::npos && line.find(' ') == kind + 6) reason = line.substr(kind + 7);
  }
  std::string said = reason.empty() ? first : reason;
  while (said.ends_with('.') || said.ends_with(':')) said.pop_back();
  return said;
}

ScriptedModel::ScriptedModel(std::string path) : path_(std::move(path)), script_(load(path_)) {
  if (!script_.find_method("forward"))
    throw ConfigError(fmt::format("the module in '{}' has no forward: script the model itself", path_));
  for (torch::jit::Module module : script_.modules()) {
    if (module.hasattr("training")) module.setattr("training", true);
  }
  try {
    mirror_ = mirror_of(script_);
  } catch (const c10::Error& error) {
    throw ConfigError(fmt::format("the module in '{}' has a name that libtorch does not take: {}", path_,
                                  reason_of(error)));
  }
  if (mirror_->parameters().empty()) {
    throw ConfigError(
        fmt::format("the module in '{}' has no parameters: save it before torch.jit.freeze or "
                    "torch.jit.optimize_for_inference makes constants of them",
                    path_));
  }
  if (trained().empty()) {
    throw ConfigError(
        fmt::format("no parameter of the module in '{}' requires a gradient: call "
                    "requires_grad_(True) on the model before it is saved",
                    path_));
  }
}

std::vector<torch::Tensor> ScriptedModel::trained() const {
  return parameters_where(*mirror_, [](const torch::Tensor& tensor) { return tensor.requires_grad(); });
}

std::vector<torch::Tensor> ScriptedModel::frozen() const {
  return parameters_where(*mirror_, [](const torch::Tensor& tensor) { return !tensor.requires_grad(); });
}

std::vector<torch::Tensor> ScriptedModel::random_inputs(const std::vector<ModelInput>& inputs,
                                                        std::int64_t range) const {
  const auto arguments = script_.get_method("forward").function().getSchema().arguments();
  std::vector<std::string> names;
  std::size_t required = 0;
  for (std::size_t i = 1; i < arguments.size(); ++i) {  // after self
    names.push_back(arguments[i].name());
    if (!arguments[i].default_value()) required = i;
  }
  if (inputs.size() < required || inputs.size() > names.size()) {
    throw ConfigError(fmt::format(
        "forward of '{}' takes {}{} tensor{} ({}), and {} --input {} given: name the shape of each, in order",
        path_, required < names.size() ? "at least " : "", required, required == 1 ? "" : "s",
        fmt::join(names, ", "), inputs.size(), inputs.size() == 1 ? "was" : "were"));
  }
  std::vector<torch::Tensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!c10::TensorType::get()->isSubtypeOf(*arguments[i + 1].type())) {
      throw ConfigError(
          fmt::format("forward of '{}' takes '{}' as {}, and --input gives tensors only: save a model whose "
                      "forward takes tensors",
                      path_, names[i], arguments[i + 1].type()->annotation_str()));
    }
    tensors.push_back(random_tensor(inputs[i], range));
  }
  return tensors;
}

std::vector<torch::Tensor> ScriptedModel::forward(const std::vector<torch::Tensor>& inputs) {
  std::vector<torch::Tensor> outputs;
  try {
    const AsWritten as_written(false);
    collect(script_.forward({inputs.begin(), inputs.end()}), outputs);
  } catch (const std::exception& error) {
    const std::string reason = reason_of(error);
    const bool index =
        reason.find("out of range") != std::string::npos || reason.find("out of bounds") != std::string::npos;
    throw ConfigError(fmt::format(
        "forward of '{}' does not take these inputs: {}{}", path_, reason,
        index ? "; integer inputs are below --range, which may not be above the rows of an embedding" : ""));
  }
  if (outputs.empty()) {
    throw ConfigError(
        fmt::format("no output of '{}' has a gradient, so there is no backward pass to measure: save "
                    "the model without detach() or no_grad() around what it returns",
                    path_));
  }
  return outputs;
}

}  // namespace dear::train_command
