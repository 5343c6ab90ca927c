// The optimiser's state by tensor, whole on every rank.

#include <span>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/process_group/torch_types.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/engine/bucket_updates.h"
#include "dear/train/optim/outlines.h"

namespace dear::train {

// A rank has parts of some tensors; those of one tensor remember the same on every rank.
optim::ShardedOptimizer::Outlines BucketUpdates::outlines() {
  optim::ShardedOptimizer::Outlines outlines(model_.workload().tensors.size());
  for (std::size_t part = 0; part < parts_.size(); ++part) optimizer_->read_outlines(part, outlines);
  const std::string mine = optim::encoded(outlines);
  for (const std::string& theirs :
       agreement::exchange(group_, agreement::Subject::state, 1, std::as_bytes(std::span(mine))))
    optim::decode(theirs, outlines);
  return outlines;
}

torch::Tensor BucketUpdates::gather_vector(BucketId bucket, const std::string& name) {
  const buckets::BucketLayout& layout = model_.buckets()[bucket].layout();
  const at::ScalarType type = state_type(process_group::scalar_type_of(layout.dtype));
  const DType dtype = *process_group::dtype_of(type);
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
    group_.all_gather(view, shares_.get()).wait();
  }
  return flat;
}

BucketUpdates::States BucketUpdates::state() {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const optim::ShardedOptimizer::Outlines all = outlines();
  States states(model_.parameters().size());
  for (std::size_t i = 0; i < model_.parameters().size(); ++i)
    if (const auto& outline = all[model_.tensor_of(i)])
      states[i] = {.vectors = {}, .scalars = outline->scalars};
  for (const std::string& name : optim::vectors_of(all)) {
    for (BucketId id = 0; id < model_.buckets().size(); ++id) {
      const torch::Tensor flat = gather_vector(id, name);
      for (std::size_t i = 0; i < model_.parameters().size(); ++i)
        if (model_.bucket_of(i) == id && all[model_.tensor_of(i)] &&
            all[model_.tensor_of(i)]->vectors.contains(name))
          states[i]->vectors[name] = model_.buckets()[id]
                                         .tensor_in(flat, model_.location_of(i).index)
                                         .to(model_.parameters()[i].tensor.device(), false, true);
    }
  }
  return states;
}

void BucketUpdates::require_state_of_shape(const States& states) const {
  for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
    if (!states[i]) continue;
    const at::ScalarType type = model_.parameters()[i].tensor.scalar_type();
    for (const auto& [name, values] : states[i]->vectors)
      if (values.sizes() != model_.parameters()[i].tensor.sizes() ||
          (values.scalar_type() != type && values.scalar_type() != state_type(type)))
        throw ConfigError(fmt::format(
            "rank {}: the optimiser's state '{}' of parameter '{}' has another shape or type than the "
            "parameter, so it cannot be cut into shards: begin with an optimiser without state",
            group_.rank(), name, model_.parameters()[i].name));
  }
}

// On streams all state is memory of the communication stream, on which updates read and replace it.
void BucketUpdates::take_over(const States& states) {
  streams_ != nullptr ? streams_->run_on_communication([&] { write_state(states); }) : write_state(states);
}

void BucketUpdates::write_state(const States& states) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  require_state_of_shape(states);
  optim::ShardedOptimizer::Outlines outlines(model_.workload().tensors.size());
  for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
    if (!states[i]) continue;
    optim::ShardedOptimizer::Outline outline{.vectors = {}, .scalars = states[i]->scalars};
    for (const auto& [name, values] : states[i]->vectors) outline.vectors.insert(name);
    outlines[model_.tensor_of(i)] = std::move(outline);
  }
  for (BucketId id = 0; id < model_.buckets().size(); ++id) {
    const buckets::BucketLayout& layout = model_.buckets()[id].layout();
    std::map<std::string, torch::Tensor> flat;
    for (const std::string& name : optim::vectors_of(outlines)) {
      const torch::Tensor whole =
          torch::zeros({layout.elements}, model_.buckets()[id].parameters().options().dtype(
                                              state_type(process_group::scalar_type_of(layout.dtype))));
      for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
        if (model_.bucket_of(i) != id || !states[i]) continue;
        const auto found = states[i]->vectors.find(name);
        if (found != states[i]->vectors.end())
          model_.buckets()[id].tensor_in(whole, model_.location_of(i).index).copy_(found->second);
      }
      flat[name] = whole;
    }
    for (std::size_t part = 0; part < parts_.size(); ++part)
      if (parts_[part].bucket == id) optimizer_->write_state(part, outlines, flat);
  }
}

}  // namespace dear::train
