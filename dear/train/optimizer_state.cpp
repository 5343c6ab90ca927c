// The optimiser's state by tensor, whole on every rank: Engine::optimizer_state() and take_over().

#include <cstring>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/train/control_plane.h"
#include "dear/train/engine.h"
#include "dear/train/operator_observer.h"
#include "dear/train/torch_types.h"

namespace dear::train {
namespace {

using Outlines = optim::ShardedOptimizer::Outlines;

void add(std::string& text, const std::string& part) {
  const std::uint64_t size = part.size();
  text.append(reinterpret_cast<const char*>(&size), sizeof size);
  text += part;
}

std::string next(std::string_view& text) {
  std::uint64_t size = 0;
  std::memcpy(&size, text.data(), sizeof size);
  std::string part(text.substr(sizeof size, size));
  text.remove_prefix(sizeof size + size);
  return part;
}

// For each tensor with state: its id, the scalars, the names of the vectors, and an end.
std::string encoded(const Outlines& outlines) {
  std::string text;
  for (std::size_t i = 0; i < outlines.size(); ++i) {
    if (!outlines[i]) continue;
    add(text, std::to_string(i));
    add(text, outlines[i]->scalars);
    for (const std::string& vector : outlines[i]->vectors) add(text, vector);
    add(text, "");
  }
  return text;
}

void decode(std::string_view text, Outlines& outlines) {
  while (!text.empty()) {
    const std::size_t tensor = std::stoul(next(text));
    optim::ShardedOptimizer::Outline outline{.vectors = {}, .scalars = next(text)};
    for (std::string vector = next(text); !vector.empty(); vector = next(text))
      outline.vectors.insert(std::move(vector));
    outlines.at(tensor) = std::move(outline);
  }
}

std::set<std::string> vectors_of(const Outlines& outlines) {
  std::set<std::string> names;
  for (const auto& outline : outlines)
    if (outline) names.insert(outline->vectors.begin(), outline->vectors.end());
  return names;
}

}  // namespace

// A rank has parts of some tensors; those of one tensor remember the same on every rank.
optim::ShardedOptimizer::Outlines Engine::outlines() {
  Outlines outlines(workload_.tensors.size());
  for (std::size_t part = 0; part < parts_.size(); ++part) optimizer_->read_outlines(part, outlines);
  const std::string mine = encoded(outlines);
  for (const std::string& theirs : exchange(group_, Subject::state, 1, std::as_bytes(std::span(mine))))
    decode(theirs, outlines);
  return outlines;
}

torch::Tensor Engine::gather_vector(BucketId bucket, const std::string& name) {
  const wire::BucketLayout& layout = buckets_[bucket].layout();
  const at::ScalarType type = state_type(scalar_type_of(layout.dtype));
  const DType dtype = *dtype_of(type);
  const Buffer buffer = group_.allocate(layout.elements * size_of(dtype));
  torch::Tensor flat =
      torch::from_blob(buffer.data(), {layout.elements}, [buffer](void*) {}, torch::dtype(type));
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    if (parts_[part].bucket != bucket) continue;
    optimizer_->read_state(part, name, flat);
    if (!parts_[part].scattered) continue;
    const View view{.buffer = buffer,
                    .offset_bytes = parts_[part].elements.begin * size_of(dtype),
                    .count = parts_[part].elements.size(),
                    .dtype = dtype};
    group_.all_gather(view).wait();
  }
  return flat;
}

std::vector<std::optional<OptimizerState>> Engine::optimizer_state() {
  const Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const Outlines all = outlines();
  std::vector<std::optional<OptimizerState>> states(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (const auto& outline = all[tensor_of(i)]) states[i] = {.vectors = {}, .scalars = outline->scalars};
  for (const std::string& name : vectors_of(all)) {
    for (BucketId id = 0; id < buckets_.size(); ++id) {
      const torch::Tensor flat = gather_vector(id, name);
      for (std::size_t i = 0; i < parameters_.size(); ++i)
        if (locations_[i].bucket == id && all[tensor_of(i)] && all[tensor_of(i)]->vectors.contains(name))
          states[i]->vectors[name] = buckets_[id].tensor_in(flat, locations_[i].index).clone();
    }
  }
  return states;
}

void Engine::take_over(const std::vector<std::optional<OptimizerState>>& states) {
  const Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  Outlines outlines(workload_.tensors.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!states[i]) continue;
    optim::ShardedOptimizer::Outline outline{.vectors = {}, .scalars = states[i]->scalars};
    for (const auto& [name, values] : states[i]->vectors) {
      const at::ScalarType type = parameters_[i].tensor.scalar_type();
      if (values.sizes() != parameters_[i].tensor.sizes() ||
          (values.scalar_type() != type && values.scalar_type() != state_type(type)))
        throw ConfigError(fmt::format(
            "rank {}: the optimiser's state '{}' of parameter '{}' has another shape or type than the "
            "parameter, so it cannot be cut into shards: begin with an optimiser without state",
            group_.rank(), name, parameters_[i].name));
      outline.vectors.insert(name);
    }
    outlines[tensor_of(i)] = std::move(outline);
  }
  for (BucketId id = 0; id < buckets_.size(); ++id) {
    const wire::BucketLayout& layout = buckets_[id].layout();
    std::map<std::string, torch::Tensor> flat;
    for (const std::string& name : vectors_of(outlines)) {
      const torch::Tensor whole =
          torch::zeros({layout.elements}, torch::dtype(state_type(scalar_type_of(layout.dtype))));
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (locations_[i].bucket != id || !states[i]) continue;
        const auto found = states[i]->vectors.find(name);
        if (found != states[i]->vectors.end())
          buckets_[id].tensor_in(whole, locations_[i].index).copy_(found->second);
      }
      flat[name] = whole;
    }
    for (std::size_t part = 0; part < parts_.size(); ++part)
      if (parts_[part].bucket == id) optimizer_->write_state(part, outlines, flat);
  }
}

}  // namespace dear::train
