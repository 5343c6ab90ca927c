#include "dear/systems/pipeline/means.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/process_group/torch_types.h"

namespace dear::systems::pipeline {

Means::Means(const Parameters& parameters, const Job& job, const Group& replicas) {
  const auto add = [&](std::optional<int> stage) {
    std::map<at::ScalarType, Tensors> by_type;
    for (const torch::Tensor& one : parameters.whole_after(stage)) by_type[one.scalar_type()].push_back(one);
    for (auto& [type, tensors] : by_type) {
      const std::optional<DType> dtype = process_group::dtype_of(type);
      if (!dtype)
        throw ConfigError(fmt::format(
            "a parameter is of {}, whose gradients no collective averages over replicas: take fp32",
            c10::toString(type)));
      auto elements = static_cast<std::int64_t>(tensors.size());
      for (const torch::Tensor& one : tensors) elements += one.numel();
      const Buffer buffer = replicas.allocate(elements * size_of(*dtype));
      buckets_.push_back({.stage = stage,
                          .parameters = std::move(tensors),
                          .group = replicas,
                          .view = {.buffer = buffer, .count = elements, .dtype = *dtype}});
    }
  };
  for (const Stage& stage : job.stages.stages)
    if (stage.rank == job.rank) add(stage.number);
  add(std::nullopt);
}

Tensors Means::Bucket::parts() const {
  const torch::Tensor whole = torch::from_blob(view.buffer.data(), {view.count},
                                               at::TensorOptions(process_group::scalar_type_of(view.dtype)));
  Tensors parts;
  std::int64_t offset = 0;
  for (const torch::Tensor& one : parameters) {
    parts.push_back(whole.narrow(0, offset, one.numel()).view(one.sizes()));
    offset += one.numel();
  }
  parts.push_back(whole.narrow(0, offset, static_cast<std::int64_t>(parameters.size())));
  return parts;
}

void Means::start(std::optional<int> stage) {
  const torch::NoGradGuard no_grad;
  for (Bucket& bucket : buckets_) {
    if (bucket.stage != stage) continue;
    Tensors parts = bucket.parts();
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      const torch::Tensor gradient = bucket.parameters[i].grad();
      parts.back()[static_cast<std::int64_t>(i)] = gradient.defined() ? 1 : 0;
      gradient.defined() ? parts[i].copy_(gradient) : parts[i].zero_();
    }
    bucket.pending = bucket.group.all_reduce(bucket.view, Reduction::average);
  }
}

void Means::finish() {
  const torch::NoGradGuard no_grad;
  for (Bucket& bucket : buckets_) {
    if (!bucket.pending) continue;
    std::exchange(bucket.pending, std::nullopt)->wait();
    const Tensors parts = bucket.parts();
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      if (parts.back()[static_cast<std::int64_t>(i)].item<double>() == 0) continue;
      torch::Tensor& gradient = bucket.parameters[i].mutable_grad();
      if (!gradient.defined()) gradient = torch::empty_like(bucket.parameters[i]);
      gradient.copy_(parts[i]);
    }
  }
}

}  // namespace dear::systems::pipeline
