// What the engine does where the program's optimiser makes the updates itself.

#include <cstdint>

#include "dear/train/autograd/operator_observer.h"
#include "dear/train/engine/engine.h"

namespace dear::train {

// [Note: updates of the program] An optimiser that nobody knows may keep anything anywhere: a count of steps
// in its parameter group or in itself, an estimate over all parameters, a second optimiser. No flat optimiser
// on parts of buckets is sure to compute what it computes. So its own step() runs, once a step, on the
// program's thread, on the program's parameters, which stay where they are; each rank makes the same update
// of them. Buckets have gradients alone, and the policy is one that ends with whole gradients on every rank.
// Its steps of the kind Update say that a bucket is reduced and change nothing: step() commits, waits for
// them, calls the optimiser and zeroes the gradients.
//
// The optimiser sees what it would see on one process: a parameter that no rank used has no gradient, one
// whose gradient the program has replaced has that, and its state is where it keeps it.

void Engine::give_gradients_to_program() {
  const autograd::Unobserved unobserved;
  for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
    if (!model_.holds_gradient(i)) continue;
    torch::Tensor& tensor = model_.parameters()[i].tensor;
    const buckets::TensorPlacement& place = model_.place_of(i);
    const torch::Tensor& flat = model_.buckets()[model_.bucket_of(i)].gradients();
    const bool unused = flat.is_cpu()
                            ? optim::is_marked_unused(flat, {place.offset, place.offset + place.elements})
                            : updates_->left_out().contains(tensor.unsafeGetTensorImpl());
    if (unused) tensor.mutable_grad().reset();
  }
}

void Engine::take_gradients_back() {
  const autograd::Unobserved unobserved;
  updates_->require_finite_parameters(conductor_->iteration() - 1);
  for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
    torch::Tensor& gradient = model_.parameters()[i].tensor.mutable_grad();
    if (streams_ && gradient.defined()) streams_->keep_for_current(gradient);
    const auto [id, index] = model_.location_of(i);
    const BucketStorage& bucket = model_.buckets()[id];
    if (!model_.holds_gradient(i)) gradient = bucket.tensor_in(bucket.gradients(), index);
  }
  for (BucketStorage& bucket : model_.buckets()) bucket.zero_gradients({0, bucket.layout().elements});
  if (streams_) streams_->adopted();
}

}  // namespace dear::train
