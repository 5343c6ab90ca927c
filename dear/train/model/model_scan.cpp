#include "dear/train/model/model_scan.h"

#include <algorithm>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include <ATen/MapAllocator.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/process_group/torch_types.h"
#include "dear/train/autograd/gradient_hook.h"
#include "dear/train/model/tensor_broadcast.h"

namespace dear::train {
namespace {

using GroupOf = std::unordered_map<const c10::TensorImpl*, std::uint32_t>;

using ParameterGroups = std::vector<std::vector<torch::Tensor>>;

GroupOf groups_of(const ParameterGroups& groups) {
  GroupOf group_of;
  for (std::uint32_t group = 0; group < groups.size(); ++group)
    for (const torch::Tensor& tensor : groups[group]) group_of.emplace(tensor.unsafeGetTensorImpl(), group);
  return group_of;
}

std::vector<std::vector<const c10::TensorImpl*>> held_by(const ParameterGroups& groups) {
  std::vector<std::vector<const c10::TensorImpl*>> held;
  for (const std::vector<torch::Tensor>& group : groups) {
    held.emplace_back();
    for (const torch::Tensor& tensor : group) held.back().push_back(tensor.unsafeGetTensorImpl());
  }
  return held;
}

void require_usable(const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.is_leaf()) {
    throw ConfigError(
        fmt::format("parameter '{}' is the result of an operation (no leaf), so no gradient arrives at it: "
                    "register its detach() and set requires_grad again",
                    name));
  }
  if (tensor.layout() != torch::kStrided || !tensor.is_non_overlapping_and_dense()) {
    throw ConfigError(fmt::format("parameter '{}' is not dense in memory: make it contiguous()", name));
  }
  if (!process_group::dtype_of(tensor.scalar_type()) || !tensor.is_floating_point()) {
    throw ConfigError(
        fmt::format("parameter '{}' is of type {}, which cannot be trained on several ranks: use float, "
                    "double, half or bfloat16",
                    name, c10::toString(tensor.scalar_type())));
  }
}

// One line a tensor, the same text on ranks whose models are alike.
std::string describe(const Model& model, const ModelScan& scanned) {
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
  for (const auto& [name, tensor] : model.parameters) add("parameter", name, tensor);
  for (const TrainedParameter& parameter : scanned.trained)
    if (parameter.name.rfind("optimiser.", 0) == 0) add("tensor", parameter.name, parameter.tensor);
  for (const auto& [name, tensor] : model.buffers)
    if (tensor.defined()) add("buffer", name, tensor);
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

ModelScan scan(const Model& model, const Optimizer& optimizer, const std::vector<torch::Tensor>& had) {
  const ParameterGroups groups = optimizer.parameter_groups();
  const GroupOf group_of = groups_of(groups);
  ModelScan scanned{.model = model};
  optim::TensorSet gone;
  for (const torch::Tensor& tensor : had) gone.insert(tensor.unsafeGetTensorImpl());
  for (const auto& [name, tensor] : model.parameters) gone.erase(tensor.unsafeGetTensorImpl());
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
          fmt::format("parameter '{}' requires a gradient but the optimiser does not hold it: add it to a "
                      "parameter group or freeze it with requires_grad_(false)",
                      name));
    }
    const auto dot = name.rfind('.');
    scanned.trained.push_back({name, dot == std::string::npos ? "" : name.substr(0, dot), tensor,
                               group->second, tensor.strides().vec()});
  };
  for (const auto& [name, tensor] : model.parameters) add(name, tensor);
  for (std::size_t group = 0; group < groups.size(); ++group)
    for (std::size_t i = 0; i < groups[group].size(); ++i) {
      const torch::Tensor& tensor = groups[group][i];
      gone.contains(tensor.unsafeGetTensorImpl()) ? scanned.gone.push_back(tensor)
                                                  : add(fmt::format("optimiser.{}.{}", group, i), tensor);
    }
  scanned.held = held_by(groups);
  if (scanned.trained.empty()) throw ConfigError("the model has no parameter that requires a gradient");
  for (const auto& [name, tensor] : model.buffers)
    if (tensor.defined()) scanned.buffers.push_back(tensor);
  return scanned;
}

std::string text_of_buffers(const ModelScan& scanned) {
  std::string all;
  for (const Model::Named& buffer : scanned.model.buffers)
    all += fmt::format("{}{} {} [{}]", all.empty() ? "" : ", ", buffer.name,
                       c10::toString(buffer.tensor.scalar_type()), fmt::join(buffer.tensor.sizes(), ", "));
  return all;
}

void look_up_buffers(ModelScan& scanned) {
  if (!scanned.model.buffers_now) return;
  std::vector<Model::Named> now = scanned.model.buffers_now();
  std::erase_if(now, [](const Model::Named& buffer) { return !buffer.tensor.defined(); });
  const bool same = std::equal(
      now.begin(), now.end(), scanned.buffers.begin(), scanned.buffers.end(),
      [](const Model::Named& buffer, const torch::Tensor& known) { return buffer.tensor.is_same(known); });
  if (same) return;
  scanned.buffers.clear();
  for (const Model::Named& buffer : now) scanned.buffers.push_back(buffer.tensor);
  scanned.model.buffers = std::move(now);
}

namespace {

// One tensor of a program, and where it lies.
struct Place {
  const std::string* name;
  const torch::Tensor* tensor;
  bool trained;
  [[nodiscard]] const char* begin() const { return static_cast<const char*>(tensor->const_data_ptr()); }
  [[nodiscard]] const char* end() const { return begin() + tensor->nbytes(); }
};

bool has_memory(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && tensor.layout() == torch::kStrided && tensor.has_storage();
}

// Tensors and programs that hold it. The object by which Python knows it, once it has one, stays as long as
// it does, and is none of them but where the program holds it.
std::size_t owners_of(const c10::Storage& storage) {
  std::size_t owners = storage.use_count();
  const auto find = [&owners](const auto* slot) {
    if constexpr (requires { slot->has_unique_reference(); })
      if (slot->load_pyobj() != nullptr && slot->has_unique_reference()) --owners;
  };
  find(storage.unsafeGetStorageImpl()->pyobj_slot());
  return owners;
}

// Every tensor that the scan knows, once.
std::vector<Place> places_of(const ModelScan& scanned) {
  std::vector<Place> places;
  optim::TensorSet seen;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor, bool trained) {
    if (has_memory(tensor) && seen.insert(tensor.unsafeGetTensorImpl()).second)
      places.push_back({&name, &tensor, trained});
  };
  for (const TrainedParameter& one : scanned.trained) add(one.name, one.tensor, true);
  for (const auto& [name, tensor] : scanned.model.parameters) add(name, tensor, false);
  for (const auto& [name, tensor] : scanned.model.buffers) add(name, tensor, false);
  return places;
}

}  // namespace

std::optional<std::string> memory_of_others(const ModelScan& scanned, const optim::TensorSet& moved) {
  std::vector<Place> places = places_of(scanned);
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.begin() < b.begin(); });
  const Place* furthest = nullptr;  // of those before, the one that ends last
  for (const Place& place : places) {
    if (furthest != nullptr && furthest->end() > place.begin() && (furthest->trained || place.trained))
      return fmt::format("'{}' and '{}' of the model share memory but are two tensors", *furthest->name,
                         *place.name);
    if (furthest == nullptr || place.end() > furthest->end()) furthest = &place;
  }
  std::unordered_map<const c10::StorageImpl*, std::size_t> known;
  for (const Place& place : places) ++known[place.tensor->storage().unsafeGetStorageImpl()];
  for (const TrainedParameter& one : scanned.trained) {
    if (moved.contains(one.tensor.unsafeGetTensorImpl())) continue;
    const c10::Storage& storage = one.tensor.storage();
    if (owners_of(storage) > known[storage.unsafeGetStorageImpl()])
      return fmt::format("a tensor that is none of the model's parameters lies on the memory of '{}'",
                         one.name);
    if (storage.device_type() == c10::DeviceType::CPU &&
        (at::MapAllocator::fromDataPtr(storage.data_ptr()) != nullptr ||
         at::RefcountedMapAllocator::fromDataPtr(storage.data_ptr()) != nullptr))
      return fmt::format("'{}' lies in memory that processes share, or in a file", one.name);
  }
  return std::nullopt;
}

void require_untrained(const TrainedParameter& parameter) {
  if (autograd::GradientHook::is_on(parameter.tensor))
    throw ConfigError(
        fmt::format("parameter '{}' is trained by another DataParallel, and would have two optimisers: put "
                    "it into one of them, and train it there",
                    parameter.name));
}

bool is_as_scanned(const Optimizer& optimizer, const ModelScan& scanned) {
  const auto trains = [](const TrainedParameter& parameter) { return parameter.tensor.requires_grad(); };
  const auto is_frozen = [](const torch::Tensor& tensor) { return !tensor.requires_grad(); };
  return std::all_of(scanned.trained.begin(), scanned.trained.end(), trains) &&
         std::all_of(scanned.frozen.begin(), scanned.frozen.end(), is_frozen) &&
         optimizer.holds(scanned.held);
}

void require_no_newcomers(const Group& group, const Optimizer& optimizer, const ModelScan& scanned) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(
        fmt::format("rank {}: {} between the first backward of a step and step(): do that between step() and "
                    "the next backward",
                    group.rank(), what));
  };
  optim::TensorSet trained;
  for (const TrainedParameter& one : scanned.trained) trained.insert(one.tensor.unsafeGetTensorImpl());
  const auto require_no_gradient = [&](const torch::Tensor& tensor) {
    if (tensor.requires_grad() && tensor.grad().defined() && !trained.contains(tensor.unsafeGetTensorImpl()))
      refuse(
          fmt::format("a parameter of shape [{}] was unfrozen or given to the optimiser, and got a gradient,",
                      fmt::join(tensor.sizes(), ", ")));
  };
  const ParameterGroups groups = optimizer.parameter_groups();
  for (const torch::Tensor& tensor : scanned.frozen) require_no_gradient(tensor);
  for (const std::vector<torch::Tensor>& group_now : groups)
    for (const torch::Tensor& tensor : group_now) require_no_gradient(tensor);
  const GroupOf group_of = groups_of(groups);
  for (const TrainedParameter& one : scanned.trained) {
    const auto found = group_of.find(one.tensor.unsafeGetTensorImpl());
    if (found == group_of.end() || found->second != one.parameter_group)
      refuse(fmt::format("parameter '{}' was taken from its group of the optimiser", one.name));
  }
}

bool is_frozen(const ModelScan& scanned, const torch::Tensor& tensor) {
  return std::any_of(scanned.frozen.begin(), scanned.frozen.end(),
                     [&](const torch::Tensor& frozen) { return frozen.is_same(tensor); });
}

std::vector<torch::Tensor> tensors_of(const std::vector<TrainedParameter>& parameters) {
  std::vector<torch::Tensor> tensors;
  for (const TrainedParameter& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

void require_alike(const Group& group, const Model& model, const Optimizer& optimizer,
                   const ModelScan& scanned) {
  agree(group, "optimiser",
        fmt::format("{} with {} parameter groups", optimizer.name(), scanned.held.size()));
  const std::vector<std::string> texts = all_gather_text(group, describe(model, scanned));
  const std::vector<std::string> expected = lines_of(texts.front());
  for (int rank = 1; rank < group.size(); ++rank) {
    if (texts[rank] == texts.front()) continue;
    const std::vector<std::string> found = lines_of(texts[rank]);
    const auto [theirs, first] = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
    const auto text_at = [](const auto& lines, auto at) { return at == lines.end() ? "nothing more" : *at; };
    throw MismatchError(fmt::format(
        "rank {}: the model of rank {} differs from that of rank 0 in tensor {}: {} there, {} on rank 0; "
        "build the same model on every rank",
        group.rank(), rank, theirs - found.begin(), text_at(found, theirs), text_at(expected, first)));
  }
}

std::vector<std::optional<OptimizerState>> initial_state(const Group& group, const Optimizer& optimizer,
                                                         const std::vector<torch::Tensor>& tensors) {
  std::vector<std::optional<OptimizerState>> states;
  std::vector<torch::Tensor> vectors;
  Digest outline;
  std::size_t count = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::optional<OptimizerState>& state = states.emplace_back(optimizer.state(tensors[i]));
    if (!state) continue;
    outline.add(std::to_string(i)).add(state->scalars);
    ++count;
    for (const auto& [name, vector] : state->vectors) {
      outline.add(name).add(
          fmt::format("[{}] {}", fmt::join(vector.sizes(), ", "), c10::toString(vector.scalar_type())));
      vectors.push_back(vector);
    }
  }
  agree(group, "state of the optimiser", fmt::format("of {} parameters, digest {}", count, outline.hex()));
  if (!vectors.empty() && group.size() > 1) model::TensorBroadcast(group, std::move(vectors)).run();
  return states;
}

}  // namespace dear::train
