// What ranks that share one copy of the parameters need beside [Note: one copy] in
// schedule/policies/one_copy.h.

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/memory.h"
#include "dear/base/vocabulary/error.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/engine/engine.h"

namespace dear::train {

// [Note: written in place] With one copy, what a program writes into a parameter is written for all ranks, as
// often as there are ranks and while some still compute with the old values. libtorch counts writes in place
// for each tensor; updates go through views of the flat bucket, which are counted apart. So a count that has
// changed is the program's doing, and no step is applied after it: neither on this rank nor, for lack of its
// commit, on another. Writes through data() or a raw pointer are not counted. Whoever replaces a parameter's
// memory instead (set_data(), torch::load()) has memory of its own until step() takes the values over.
void Engine::require_usable_parameters() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].name;
    const torch::Tensor& tensor = parameters_[i].tensor;
    const auto [bucket, index] = locations_[i];
    const bool replaced = !buckets_[bucket].holds_parameter(index, tensor);
    if (replaced && !buckets_[bucket].fits(index, tensor)) {
      throw ConfigError(fmt::format(
          "rank {}: parameter '{}' was replaced by a tensor of shape [{}], {}, on {}, and had {} elements of "
          "{}: make "
          "a new DataParallel when a model's shapes, types or devices change",
          group_.rank(), name, fmt::join(tensor.sizes(), ", "), c10::toString(tensor.scalar_type()),
          tensor.device().str(), place_of(i).elements, name_of(buckets_[bucket].layout().dtype)));
    }
    if (!one_copy_) continue;
    if (tensor._version() != versions_[i]) {
      throw ConfigError(fmt::format(
          "rank {}: parameter '{}' was written in place (by an operator such as copy_() or clamp_()), "
          "but all ranks share one copy of it: give it new values with set_data(), the same on "
          "every rank, or train without one copy",
          group_.rank(), name));
    }
    if (replaced && updates_ahead()) {
      throw ConfigError(fmt::format(
          "rank {}: parameter '{}' was replaced, but policy {} updates the one copy that all ranks "
          "share before step() could take the new values over: train with policy dear, or without "
          "one copy",
          group_.rank(), name, schedule_->policy()));
    }
  }
}

void Engine::remember_versions() {
  versions_.clear();
  for (const TrainedParameter& parameter : parameters_) versions_.push_back(parameter.tensor._version());
}

void Engine::leave_one_copy() {
  const std::vector<std::int64_t> bytes = bucket_bytes();
  os::require_memory(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}),
                     "a copy of the parameters for each rank");
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    torch::Tensor& tensor = parameters_[i].tensor;
    const auto [bucket, index] = locations_[i];
    if (buckets_[bucket].holds_parameter(index, tensor)) tensor.set_data(tensor.detach().clone());
  }
}

}  // namespace dear::train
