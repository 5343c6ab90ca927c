#include "dear/train/model_scan.h"

#include <algorithm>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/error.h"
#include "dear/collective/exchange.h"
#include "dear/train/torch_types.h"

namespace dear::train {
namespace {

using GroupOf = std::unordered_map<const c10::TensorImpl*, std::uint32_t>;

GroupOf groups_of(const torch::optim::Optimizer& optimizer) {
  GroupOf group_of;
  std::uint32_t group = 0;
  for (const auto& param_group : optimizer.param_groups()) {
    for (const torch::Tensor& tensor : param_group.params())
      group_of.emplace(tensor.unsafeGetTensorImpl(), group);
    ++group;
  }
  return group_of;
}

std::vector<std::vector<const c10::TensorImpl*>> tensors_of(const torch::optim::Optimizer& optimizer) {
  std::vector<std::vector<const c10::TensorImpl*>> held;
  for (const auto& param_group : optimizer.param_groups()) {
    held.emplace_back();
    for (const torch::Tensor& tensor : param_group.params())
      held.back().push_back(tensor.unsafeGetTensorImpl());
  }
  return held;
}

void require_usable(const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.is_leaf()) {
    throw ConfigError(fmt::format(
        "parameter '{}' is the result of an operation (no leaf), so no gradient arrives at it: register "
        "its detach() and set requires_grad again",
        name));
  }
  if (!tensor.device().is_cpu()) {
    throw ConfigError(
        fmt::format("parameter '{}' is on {}: this build trains on the CPU; move the model there", name,
                    tensor.device().str()));
  }
  if (tensor.layout() != torch::kStrided || !tensor.is_non_overlapping_and_dense()) {
    throw ConfigError(fmt::format("parameter '{}' is not dense in memory: make it contiguous()", name));
  }
  if (!dtype_of(tensor.scalar_type()) || !tensor.is_floating_point()) {
    throw ConfigError(
        fmt::format("parameter '{}' is of type {}, which cannot be trained on several ranks: use float, "
                    "double, half or bfloat16",
                    name, c10::toString(tensor.scalar_type())));
  }
}

void require_separate(const std::vector<TrainedParameter>& parameters) {
  std::vector<const TrainedParameter*> by_address;
  for (const TrainedParameter& parameter : parameters) by_address.push_back(&parameter);
  const auto address = [](const TrainedParameter* parameter) {
    return static_cast<const char*>(parameter->tensor.data_ptr());
  };
  std::sort(by_address.begin(), by_address.end(), [&](auto* a, auto* b) { return address(a) < address(b); });
  for (std::size_t i = 1; i < by_address.size(); ++i) {
    if (address(by_address[i - 1]) + by_address[i - 1]->tensor.nbytes() > address(by_address[i])) {
      throw ConfigError(
          fmt::format("parameters '{}' and '{}' share memory but are two tensors: register the same "
                      "tensor in both modules, or give each its own memory",
                      by_address[i - 1]->name, by_address[i]->name));
    }
  }
}

// One line a tensor, the same text on ranks whose models are alike.
std::string describe(const torch::nn::Module& model, const ModelScan& scanned) {
  std::unordered_map<const c10::TensorImpl*, const TrainedParameter*> trained;
  for (const TrainedParameter& parameter : scanned.trained)
    trained[parameter.tensor.unsafeGetTensorImpl()] = &parameter;
  std::string text;
  const auto add = [&](const std::string& kind, const std::string& name, const torch::Tensor& tensor) {
    const auto found = trained.find(tensor.unsafeGetTensorImpl());
    const std::string role =
        found == trained.end() ? kind
                               : fmt::format("{}, trained in group {}", kind, found->second->parameter_group);
    // A frozen parameter or a buffer is copied from rank 0 by value, whatever its memory order.
    const std::string order = found == trained.end() || tensor.is_contiguous()
                                  ? ""
                                  : fmt::format(", of strides [{}]", fmt::join(tensor.strides(), ", "));
    text += fmt::format("{} '{}' of shape [{}], {}{}\n", role, name, fmt::join(tensor.sizes(), ", "),
                        c10::toString(tensor.scalar_type()), order);
  };
  for (const auto& item : model.named_parameters()) add("parameter", item.key(), item.value());
  for (const TrainedParameter& parameter : scanned.trained)
    if (parameter.name.rfind("optimiser.", 0) == 0) add("tensor", parameter.name, parameter.tensor);
  for (const auto& item : model.named_buffers()) add("buffer", item.key(), item.value());
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string line_or_nothing(const std::vector<std::string>& lines, std::size_t index) {
  return index < lines.size() ? lines[index] : "nothing more";
}

}  // namespace

ModelScan scan(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer) {
  const GroupOf group_of = groups_of(optimizer);
  ModelScan scanned;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    if (!tensor.requires_grad()) {
      scanned.frozen.push_back(tensor);
      return;
    }
    if (tensor.numel() == 0) return;  // there is nothing to train
    require_usable(name, tensor);
    const auto group = group_of.find(tensor.unsafeGetTensorImpl());
    if (group == group_of.end()) {
      throw ConfigError(
          fmt::format("parameter '{}' requires a gradient but the optimiser does not hold it: add it to "
                      "a parameter group or freeze it with requires_grad_(false)",
                      name));
    }
    const auto dot = name.rfind('.');
    scanned.trained.push_back({name, dot == std::string::npos ? "" : name.substr(0, dot), tensor,
                               group->second, tensor.strides().vec()});
  };
  for (const auto& item : model.named_parameters()) add(item.key(), item.value());
  const auto& groups = optimizer.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::vector<torch::Tensor>& params = groups[group].params();
    for (std::size_t i = 0; i < params.size(); ++i) add(fmt::format("optimiser.{}.{}", group, i), params[i]);
  }
  scanned.held = tensors_of(optimizer);
  if (scanned.trained.empty()) throw ConfigError("the model has no parameter that requires a gradient");
  require_separate(scanned.trained);
  for (const auto& item : model.named_buffers()) {
    if (item.value().defined()) scanned.buffers.push_back(item.value());
  }
  return scanned;
}

void require_same_tensors(const Group& group, const torch::optim::Optimizer& optimizer,
                          const ModelScan& scanned) {
  const auto& groups = optimizer.param_groups();
  if (groups.size() != scanned.held.size()) {
    throw ConfigError(fmt::format(
        "rank {}: the optimiser has {} parameter groups and had {} when DataParallel was made: make a "
        "new one after adding a group",
        group.rank(), groups.size(), scanned.held.size()));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& params = groups[i].params();
    const auto& held = scanned.held[i];
    const auto same = [](const torch::Tensor& tensor, const c10::TensorImpl* before) {
      return tensor.unsafeGetTensorImpl() == before;
    };
    if (!std::equal(params.begin(), params.end(), held.begin(), held.end(), same)) {
      throw ConfigError(fmt::format(
          "rank {}: parameter group {} of the optimiser holds other tensors than when DataParallel was "
          "made: make a new one when the set of trained parameters changes",
          group.rank(), i));
    }
  }
}

void require_alike(const Group& group, const torch::nn::Module& model,
                   const torch::optim::Optimizer& optimizer, const ModelScan& scanned) {
  agree(group, "optimiser",
        fmt::format("{} with {} parameter groups", c10::demangle(typeid(optimizer).name()),
                    optimizer.param_groups().size()));
  const std::vector<std::string> texts = all_gather_text(group, describe(model, scanned));
  const std::vector<std::string> expected = lines_of(texts.front());
  for (int rank = 1; rank < group.size(); ++rank) {
    if (texts[rank] == texts.front()) continue;
    const std::vector<std::string> found = lines_of(texts[rank]);
    std::size_t index = 0;
    while (index < std::min(expected.size(), found.size()) && expected[index] == found[index]) ++index;
    throw MismatchError(fmt::format(
        "rank {}: the model of rank {} differs from that of rank 0 in tensor {}: {} there, "
        "{} on rank 0; build the same model on every rank",
        group.rank(), rank, index, line_or_nothing(found, index), line_or_nothing(expected, index)));
  }
}

}  // namespace dear::train
