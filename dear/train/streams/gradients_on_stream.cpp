#include "dear/train/streams/gradients_on_stream.h"

#include <cmath>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include "dear/train/streams/own_operators.h"

namespace dear::streams {
at::Tensor GradientsOnStream::clip(double max_norm, double type, bool keep_nonfinite) {
  const OwnOperators own;
  at::Tensor norm;
  {
    const auto guard = streams_.on_communication();
    const bool largest = std::isinf(type);
    std::vector<at::Tensor> norms;
    norms.reserve(counted_.size());
    for (const Vector& shard : counted_)
      norms.push_back(at::linalg_vector_norm(shard.gradients, type, std::nullopt, false, at::kDouble));
    norm = at::stack(norms);
    norm = (largest ? norm.max() : norm.pow(type).sum()).view({1});
    collectives_.all_reduce(norm,
                            largest ? StreamCollectives::Joined::largest : StreamCollectives::Joined::sum);
    if (!largest) norm.pow_(1 / type);
    at::Tensor factor = (norm + 1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0);
    if (keep_nonfinite) factor.masked_fill_(norm.isfinite().logical_not_(), 1.0);
    multiply(factor);
  }
  streams_.pass_to_current(norm);
  return norm.squeeze();
}

at::Tensor GradientsOnStream::nonfinite() {
  const OwnOperators own;
  at::Tensor found;
  {
    const auto guard = streams_.on_communication();
    std::vector<at::Tensor> sums;  // a difference with itself is 0 where a value is finite, else NaN
    sums.reserve(counted_.size());
    for (const Vector& shard : counted_)
      sums.push_back((shard.gradients - shard.gradients).sum().to(at::kFloat));
    found = at::stack(sums).ne(0).any().to(at::kFloat).view({1});
    collectives_.all_reduce(found, StreamCollectives::Joined::largest);
  }
  streams_.pass_to_current(found);
  return found.squeeze();
}

void GradientsOnStream::scale(double factor) {
  if (factor == 1) return;
  const OwnOperators own;
  const auto guard = streams_.on_communication();
  for (Vector& held : held_) held.gradients.mul_(factor);
  written();
}

void GradientsOnStream::clamp(double limit) {
  const OwnOperators own;
  const auto guard = streams_.on_communication();
  for (Vector& held : held_) held.gradients.clamp_(-limit, limit);
  written();
}

void GradientsOnStream::scale(const at::Tensor& factor) {
  const OwnOperators own;
  const at::Tensor copy = factor.clone();  // the program may change it in place
  streams_.pass_to_communication(copy);
  const auto guard = streams_.on_communication();
  multiply(copy);
}

// A factor of 16 bits would be too coarse.
void GradientsOnStream::multiply(const at::Tensor& factor) {
  for (auto& [bucket, held] : held_) {
    if (held.element_size() == 2) {
      held.copy_(held.to(at::kFloat).mul_(factor.to(at::kFloat)));
    } else {
      held.mul_(factor.to(held.scalar_type()));
    }
  }
  written();
}

void GradientsOnStream::written() {
  for (const Vector& held : held_) streams_.enqueued(held.bucket, Part::gradients);
}

}  // namespace dear::streams
