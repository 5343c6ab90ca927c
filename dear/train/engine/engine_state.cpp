#include "dear/train/engine/engine_state.h"

#include <algorithm>
#include <map>

#include "dear/train/autograd/operator_observer.h"
#include "dear/train/engine/engine.h"
#include "dear/train/optim/torch_types.h"

namespace dear::checkpoint {

using autograd::Unobserved;
using train::Engine;

namespace {

bool has(const EngineState::Outlines& outlines, std::size_t parameter, const std::string& vector) {
  return outlines[parameter] && outlines[parameter]->vectors.contains(vector);
}

}  // namespace

EngineState::Outlines EngineState::outlines() {
  const optim::ShardedOptimizer::Outlines all = engine_.outlines();
  Outlines of_parameter(engine_.parameters_.size());
  for (std::size_t i = 0; i < of_parameter.size(); ++i) of_parameter[i] = all[engine_.tensor_of(i)];
  return of_parameter;
}

optim::ShardedOptimizer::Outlines EngineState::by_tensor(const Outlines& outlines) const {
  optim::ShardedOptimizer::Outlines all(engine_.workload_.tensors.size());
  for (std::size_t i = 0; i < outlines.size(); ++i) all[engine_.tensor_of(i)] = outlines[i];
  return all;
}

// The names of the vectors that some tensor of the bucket has.
std::set<std::string> EngineState::vectors_in(std::uint32_t bucket, const Outlines& outlines) const {
  std::set<std::string> names;
  for (std::size_t i = 0; i < outlines.size(); ++i)
    if (engine_.locations_[i].bucket == bucket && outlines[i])
      names.insert(outlines[i]->vectors.begin(), outlines[i]->vectors.end());
  return names;
}

void EngineState::visit(const Outlines& outlines, const Visit& visit) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  for (BucketId id = 0; id < engine_.buckets_.size(); ++id) {
    for (const std::string& name : vectors_in(id, outlines)) {
      const torch::Tensor flat = engine_.gather_vector(id, name);
      for (std::size_t i = 0; i < outlines.size(); ++i)
        if (engine_.locations_[i].bucket == id && has(outlines, i, name))
          visit(i, name, engine_.buckets_[id].tensor_in(flat, engine_.locations_[i].index));
    }
  }
}

// Where every rank updates the whole part, each saves the shard of it that it would update otherwise.
void EngineState::visit_own(const std::function<void(const Piece&)>& visit) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  std::vector<std::size_t> parameter_of(engine_.workload_.tensors.size());
  for (std::size_t i = 0; i < engine_.parameters_.size(); ++i) parameter_of[engine_.tensor_of(i)] = i;
  for (std::size_t i = 0; i < engine_.parts_.size(); ++i) {
    const Engine::Part& part = engine_.parts_[i];
    const buckets::BucketLayout& layout = engine_.buckets_[part.bucket].layout();
    const Range shard =
        shard_of(part.elements.size(), layout.dtype, engine_.group_.size(), engine_.group_.rank());
    const Range own{part.elements.begin + shard.begin, part.elements.begin + shard.end};
    engine_.optimizer_->visit_state(i, [&](const optim::ShardedOptimizer::StretchOfState& stretch) {
      const buckets::TensorPlacement& placement = engine_.place_of(parameter_of[stretch.tensor]);
      const std::int64_t begin = std::max(stretch.begin, own.begin);
      const std::int64_t end = std::min(stretch.begin + stretch.values.numel(), own.end);
      if (begin >= end) return;
      visit({.parameter = parameter_of[stretch.tensor],
             .vector = stretch.vector,
             .begin = begin - placement.offset,
             .values = stretch.values.narrow(0, begin - stretch.begin, end - begin)});
    });
  }
}

void EngineState::fill(torch::Tensor& flat, std::uint32_t bucket, const std::string& vector,
                       const Outlines& outlines, const Fetch& fetch) {
  for (std::size_t i = 0; i < outlines.size(); ++i)
    if (engine_.locations_[i].bucket == bucket && has(outlines, i, vector))
      engine_.buckets_[bucket].tensor_in(flat, engine_.locations_[i].index).copy_(fetch(i, vector));
}

void EngineState::replace(const Outlines& outlines, const Fetch& fetch, Holder holder) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const optim::ShardedOptimizer::Outlines of_tensor = by_tensor(outlines);
  for (BucketId id = 0; id < engine_.buckets_.size(); ++id) {
    const buckets::BucketLayout& layout = engine_.buckets_[id].layout();
    const at::ScalarType type = engine_.state_type(optim::scalar_type_of(layout.dtype));
    std::map<std::string, torch::Tensor> flat;
    for (const std::string& name : vectors_in(id, outlines)) {
      if (holder == Holder::every_rank) {
        flat[name] = torch::zeros({layout.elements}, torch::dtype(type));
        fill(flat[name], id, name, outlines, fetch);
        continue;
      }
      const DType dtype = *optim::dtype_of(type);
      const Buffer buffer = engine_.group_.allocate(layout.elements * size_of(dtype));
      flat[name] = torch::from_blob(buffer.data(), {layout.elements}, [buffer](void*) {}, torch::dtype(type));
      flat[name].zero_();
      if (engine_.group_.rank() == 0) fill(flat[name], id, name, outlines, fetch);
      engine_.group_
          .broadcast({.buffer = buffer, .offset_bytes = 0, .count = layout.elements, .dtype = dtype}, 0)
          .wait();
    }
    for (auto& [name, values] : flat) values = values.to(engine_.buckets_[id].parameters().device());
    for (std::size_t part = 0; part < engine_.parts_.size(); ++part)
      if (engine_.parts_[part].bucket == id) engine_.optimizer_->write_state(part, of_tensor, flat);
  }
}

}  // namespace dear::checkpoint
