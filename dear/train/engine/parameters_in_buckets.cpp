#include "dear/train/engine/parameters_in_buckets.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/memory.h"
#include "dear/base/vocabulary/error.h"
#include "dear/train/autograd/operator_observer.h"

namespace dear::train {

ParametersInBuckets::ParametersInBuckets(Group group, std::vector<TrainedParameter>& parameters,
                                         const std::vector<std::size_t>& order, const Workload& workload,
                                         Options options)
    : group_(std::move(group)),
      parameters_(parameters),
      order_(order),
      workload_(workload),
      options_(std::move(options)),
      locations_(parameters.size()) {}

BucketStorage& ParametersInBuckets::add(buckets::BucketLayout layout, std::vector<Range> own) {
  const auto id = static_cast<BucketId>(buckets_.size());
  BucketStorage& bucket =
      options_.streams != nullptr
          ? buckets_.emplace_back(parameters_.front().tensor.device(), std::move(layout), std::move(own),
                                  options_.copies)
          : buckets_.emplace_back(group_, std::move(layout), std::move(own), options_.copies);
  for (std::size_t index = 0; index < bucket.layout().placements.size(); ++index) {
    const std::size_t parameter = order_[bucket.layout().placements[index].tensor];
    locations_[parameter] = {id, index};
    torch::Tensor& tensor = parameters_[parameter].tensor;
    if (options_.streams != nullptr)
      for (const torch::Tensor& old : {tensor, tensor.grad()}) options_.streams->keep_for_current(old);
    bucket.adopt(index, tensor, parameters_[parameter].strides);
  }
  if (options_.copies != Copies::none) storages_[bucket.parameter_storage()] = {id, Kind::parameters};
  storages_[bucket.gradient_storage()] = {id, Kind::gradients};
  return bucket;
}

// Parameters that stay where they are are known by their storages, for the times of layers. A parameter that
// is given other memory later is missed there, and waits for nothing.
void ParametersInBuckets::complete() {
  if (one_copy()) {
    group_.barrier().wait();  // each rank has written its shards: nobody reads the others before
    remember_versions();
  }
  for (std::size_t i = 0; i < parameters_.size() && options_.copies == Copies::none; ++i)
    storages_.try_emplace(parameters_[i].tensor.storage().unsafeGetStorageImpl(),
                          Storage{locations_[i].bucket, Kind::parameters});
}

std::vector<std::int64_t> ParametersInBuckets::bucket_bytes() const {
  std::vector<std::int64_t> bytes;
  for (const BucketStorage& bucket : buckets_) bytes.push_back(bucket.layout().bytes());
  return bytes;
}

bool ParametersInBuckets::holds_gradient(std::size_t parameter) const {
  const auto [bucket, index] = locations_[parameter];
  return buckets_[bucket].holds_gradient(index, parameters_[parameter].tensor);
}

void ParametersInBuckets::restore_gradient(std::size_t parameter) {
  const autograd::Unobserved unobserved;
  const auto [bucket, index] = locations_[parameter];
  torch::Tensor& tensor = parameters_[parameter].tensor;
  if (options_.streams != nullptr) {
    options_.streams->await(bucket, streams::Part::gradients);
    options_.streams->keep_for_current(tensor.grad());
  }
  buckets_[bucket].restore_gradient(index, tensor);
}

void ParametersInBuckets::restore_parameters() {
  require_usable();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto [bucket, index] = locations_[i];
    if (buckets_[bucket].holds_parameter(index, parameters_[i].tensor)) continue;
    const autograd::Unobserved unobserved;
    if (options_.streams != nullptr) {
      options_.streams->await(bucket, streams::Part::parameters);
      options_.streams->keep_for_current(parameters_[i].tensor);
    }
    buckets_[bucket].restore_parameter(index, parameters_[i].tensor);
  }
  if (one_copy()) remember_versions();
}

void ParametersInBuckets::mark_unused(std::size_t parameter) {
  const autograd::Unobserved unobserved;
  const auto [bucket, index] = locations_[parameter];
  buckets_[bucket].mark_unused(index);
}

void ParametersInBuckets::require_held() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto [bucket, index] = locations_[i];
    if (buckets_[bucket].holds_parameter(index, parameters_[i].tensor)) continue;
    throw ConfigError(
        fmt::format("rank {}: parameter '{}' was replaced between backward and step(), where policy {} "
                    "updates already: replace it after step(), or train with policy dear",
                    group_.rank(), parameters_[i].name, options_.updates_ahead));
  }
}

// [Note: written in place] With one copy, what a program writes into a parameter is written for all ranks, as
// often as there are ranks and while some still compute with the old values. libtorch counts writes in place
// for each tensor; updates go through views of the flat bucket, which are counted apart. So a count that has
// changed is the program's doing, and no step is applied after it: neither on this rank nor, for lack of its
// commit, on another. Writes through data() or a raw pointer are not counted. Whoever replaces a parameter's
// memory instead (set_data(), torch::load()) has memory of its own until step() takes the values over.
void ParametersInBuckets::require_usable() const {
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
    if (!one_copy()) continue;
    if (tensor._version() != versions_[i]) {
      throw ConfigError(fmt::format(
          "rank {}: parameter '{}' was written in place (by an operator such as copy_() or clamp_()), "
          "but all ranks share one copy of it: give it new values with set_data(), the same on "
          "every rank, or train without one copy",
          group_.rank(), name));
    }
    if (replaced && !options_.updates_ahead.empty()) {
      throw ConfigError(fmt::format(
          "rank {}: parameter '{}' was replaced, but policy {} updates the one copy that all ranks "
          "share before step() could take the new values over: train with policy dear, or without "
          "one copy",
          group_.rank(), name, options_.updates_ahead));
    }
  }
}

void ParametersInBuckets::remember_versions() {
  versions_.clear();
  for (const TrainedParameter& parameter : parameters_) versions_.push_back(parameter.tensor._version());
}

void ParametersInBuckets::leave_one_copy() {
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
