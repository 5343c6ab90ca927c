#include "dear/train/engine/engine_state.h"

#include <algorithm>
#include <map>

#include "dear/comm/group/exchange.h"
#include "dear/comm/process_group/torch_types.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/engine/engine.h"
#include "dear/train/engine/sharing.h"

namespace dear::train {

namespace {

bool has(const EngineState::Outlines& outlines, std::size_t parameter, const std::string& vector) {
  return outlines[parameter] && outlines[parameter]->vectors.contains(vector);
}

}  // namespace

EngineState::Outlines EngineState::outlines() {
  const optim::ShardedOptimizer::Outlines all = engine_.updates().outlines();
  Outlines of_parameter(engine_.model().parameters().size());
  for (std::size_t i = 0; i < of_parameter.size(); ++i) of_parameter[i] = all[engine_.model().tensor_of(i)];
  return of_parameter;
}

optim::ShardedOptimizer::Outlines EngineState::by_tensor(const Outlines& outlines) const {
  optim::ShardedOptimizer::Outlines all(engine_.workload().tensors.size());
  for (std::size_t i = 0; i < outlines.size(); ++i) all[engine_.model().tensor_of(i)] = outlines[i];
  return all;
}

// The names of the vectors that some tensor of the bucket has.
std::set<std::string> EngineState::vectors_in(std::uint32_t bucket, const Outlines& outlines) const {
  std::set<std::string> names;
  for (std::size_t i = 0; i < outlines.size(); ++i)
    if (engine_.model().bucket_of(i) == bucket && outlines[i])
      names.insert(outlines[i]->vectors.begin(), outlines[i]->vectors.end());
  return names;
}

void EngineState::visit(const Outlines& outlines, const Visit& visit) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  for (BucketId id = 0; id < engine_.model().buckets().size(); ++id) {
    for (const std::string& name : vectors_in(id, outlines)) {
      const torch::Tensor flat = engine_.updates().gather_vector(id, name);
      for (std::size_t i = 0; i < outlines.size(); ++i)
        if (engine_.model().bucket_of(i) == id && has(outlines, i, name))
          visit(i, name, engine_.model().buckets()[id].tensor_in(flat, engine_.model().location_of(i).index));
    }
  }
}

// Where every rank updates the whole part, each saves the shard of it that it would update otherwise.
void EngineState::visit_own(const std::function<void(const Piece&)>& visit) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  std::vector<std::size_t> parameter_of(engine_.workload().tensors.size());
  for (std::size_t i = 0; i < engine_.model().parameters().size(); ++i)
    parameter_of[engine_.model().tensor_of(i)] = i;
  for (std::size_t i = 0; i < engine_.updates().parts().size(); ++i) {
    const BucketUpdates::Part& part = engine_.updates().parts()[i];
    const buckets::BucketLayout& layout = engine_.model().buckets()[part.bucket].layout();
    const Range own = engine_.updates().own_shard(part.elements, layout.dtype);
    engine_.updates().optimizer().visit_state(i, [&](const optim::ShardedOptimizer::StretchOfState& stretch) {
      const buckets::TensorPlacement& placement = engine_.model().place_of(parameter_of[stretch.tensor]);
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
    if (engine_.model().bucket_of(i) == bucket && has(outlines, i, vector))
      engine_.model()
          .buckets()[bucket]
          .tensor_in(flat, engine_.model().location_of(i).index)
          .copy_(fetch(i, vector));
}

// Whether this rank has all elements that it updates.
bool EngineState::has_own(const Outlines& outlines, const Values& values) const {
  for (const BucketUpdates::Part& part : engine_.updates().parts()) {
    const Range own = engine_.updates().own_range(part);
    for (std::size_t i = 0; i < outlines.size(); ++i) {
      if (engine_.model().bucket_of(i) != part.bucket || !outlines[i]) continue;
      const buckets::TensorPlacement& place = engine_.model().place_of(i);
      const Range elements{std::max(own.begin - place.offset, std::int64_t{0}),
                           std::min(own.end - place.offset, place.elements)};
      for (const std::string& name : outlines[i]->vectors)
        if (elements.begin < elements.end && !values.has(i, name, elements)) return false;
    }
  }
  return true;
}

void EngineState::replace(const Outlines& outlines, const Values& values) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const optim::ShardedOptimizer::Outlines of_tensor = by_tensor(outlines);
  bool travel = values.holder != Holder::every_rank;
  if (values.holder == Holder::spread) {
    const auto all = comm::all_gather_values(engine_.group(), std::uint8_t{has_own(outlines, values)});
    travel = std::find(all.begin(), all.end(), 0) != all.end();
  }
  // All buckets have the same memory in turn: between vectors that stay, memory of each would leave holes.
  std::map<std::string, torch::Tensor> rooms;
  for (BucketId id = 0; id < engine_.model().buckets().size(); ++id) {
    const buckets::BucketLayout& layout = engine_.model().buckets()[id].layout();
    const at::ScalarType type = engine_.updates().state_type(process_group::scalar_type_of(layout.dtype));
    std::map<std::string, torch::Tensor> flat;
    for (const std::string& name : vectors_in(id, outlines)) {
      torch::Tensor& room = rooms[name];
      const auto bytes = layout.elements * static_cast<std::int64_t>(c10::elementSize(type));
      if (!room.defined() || room.numel() < bytes) room = torch::empty({bytes}, torch::kByte);
      flat[name] = room.narrow(0, 0, bytes).view(type).zero_();
      if (values.holder != Holder::rank_0 || engine_.group().rank() == 0)
        fill(flat[name], id, name, outlines, values.fetch);
    }
    if (travel) {
      std::vector<torch::Tensor> all;
      for (const auto& one : flat) all.push_back(one.second);
      share(engine_.group(), all, values.holder);
    }
    for (auto& [name, vector] : flat) vector = vector.to(engine_.model().buckets()[id].parameters().device());
    for (std::size_t part = 0; part < engine_.updates().parts().size(); ++part)
      if (engine_.updates().parts()[part].bucket == id)
        engine_.updates().optimizer().write_state(part, of_tensor, flat);
    for (std::size_t i = 0; i < outlines.size() && values.forget; ++i)
      if (engine_.model().bucket_of(i) == id && outlines[i])
        for (const std::string& name : outlines[i]->vectors) values.forget(i, name);
  }
}

}  // namespace dear::train
