// Optimiser state between two engines: Engine::optimizer_state() and take_over().

#include <algorithm>

#include "dear/train/control_plane.h"
#include "dear/train/engine.h"
#include "dear/train/operator_observer.h"
#include "dear/train/torch_types.h"

namespace dear::train {
namespace {

// On any rank: one that has nothing of a small bucket may remember nothing.
ElementwiseOptimizer::StateVectors vectors_of_all(const Group& group,
                                                  ElementwiseOptimizer::StateVectors has) {
  const std::vector<std::uint8_t> mine(has.begin(), has.end());
  for (const std::vector<std::uint8_t>& theirs : all_gather_values(group, Subject::state, mine))
    for (std::size_t i = 0; i < has.size(); ++i) has[i] = has[i] || theirs.at(i) != 0;
  return has;
}

// The greatest on any rank, by tensor: a rank has parts of some.
std::vector<std::int64_t> updates_of_all(const Group& group, std::vector<std::int64_t> updates) {
  for (const std::vector<std::int64_t>& theirs : all_gather_values(group, Subject::state, updates))
    for (std::size_t i = 0; i < updates.size(); ++i) updates[i] = std::max(updates[i], theirs.at(i));
  return updates;
}

}  // namespace

Engine::OptimizerState Engine::optimizer_state() {
  const Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  std::vector<std::int64_t> updates(workload_.tensors.size());
  for (std::size_t part = 0; part < parts_.size(); ++part) optimizer_->read_updates(part, updates);
  OptimizerState state{.updates = updates_of_all(group_, std::move(updates)), .vectors = {}};
  const auto has_vector = vectors_of_all(group_, optimizer_->state_vectors());
  for (std::size_t vector = 0; vector < state.vectors.size(); ++vector) {
    if (!has_vector[vector]) continue;
    state.vectors[vector].resize(parameters_.size());
    for (BucketId id = 0; id < buckets_.size(); ++id) {
      const wire::BucketLayout& layout = buckets_[id].layout();
      const Buffer buffer = group_.allocate(layout.bytes());
      torch::Tensor flat =
          torch::from_blob(buffer.data(), {layout.elements}, torch::dtype(scalar_type_of(layout.dtype)));
      for (std::size_t part = 0; part < parts_.size(); ++part) {
        const auto& [bucket, chunk, index, elements, scattered] = parts_[part];
        if (bucket != id) continue;
        optimizer_->read_state(part, vector, flat);
        if (!scattered) continue;
        const View view{.buffer = buffer,
                        .offset_bytes = elements.begin * size_of(layout.dtype),
                        .count = elements.size(),
                        .dtype = layout.dtype};
        group_.all_gather(view).wait();
      }
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (locations_[i].bucket != id) continue;
        const wire::TensorPlacement& place = place_of(i);
        state.vectors[vector][i] = flat.narrow(0, place.offset, place.elements).clone();
      }
    }
  }
  return state;
}

void Engine::take_over(const OptimizerState& state) {
  const Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  for (std::size_t part = 0; part < parts_.size(); ++part) optimizer_->write_updates(part, state.updates);
  for (std::size_t vector = 0; vector < state.vectors.size(); ++vector) {
    if (state.vectors[vector].empty()) continue;
    for (BucketId id = 0; id < buckets_.size(); ++id) {
      const wire::BucketLayout& layout = buckets_[id].layout();
      const torch::Tensor flat = torch::zeros({layout.elements}, torch::dtype(scalar_type_of(layout.dtype)));
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (locations_[i].bucket != id) continue;
        const wire::TensorPlacement& place = place_of(i);
        flat.narrow(0, place.offset, place.elements).copy_(state.vectors[vector][i]);
      }
      for (std::size_t part = 0; part < parts_.size(); ++part)
        if (parts_[part].bucket == id) optimizer_->write_state(part, vector, flat);
    }
  }
}

}  // namespace dear::train
