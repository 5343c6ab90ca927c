#include "dear/train/engine/bucket_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dear/comm/process_group/torch_types.h"
#include "dear/train/streams/bucket_queue.h"

namespace dear::train {
namespace {

// The tensor keeps the buffer alive.
torch::Tensor flat_tensor(const Buffer& buffer, const buckets::BucketLayout& layout) {
  return torch::from_blob(
      buffer.data(), {layout.elements}, [buffer](void*) {},
      torch::dtype(process_group::scalar_type_of(layout.dtype)));
}

}  // namespace

BucketStorage::BucketStorage(const Group& group, buckets::BucketLayout layout, std::vector<Range> own,
                             Copies copies)
    : layout_(std::move(layout)),
      forms_(layout_.placements.size()),
      copies_(copies),
      own_(std::move(own)),
      incoming_(own_.size()),
      gradient_buffer_(Group(group).allocate(layout_.bytes())),
      gradients_(flat_tensor(gradient_buffer_, layout_)),
      gradient_data_(gradient_buffer_.data()) {
  if (copies == Copies::none) {
    parameters_ = torch::empty({0}, gradients_.options());
    return;
  }
  parameter_buffer_ = copies == Copies::one_for_all ? Group(group).allocate_shared(layout_.bytes())
                                                    : Group(group).allocate(layout_.bytes());
  parameters_ = flat_tensor(parameter_buffer_, layout_);
  parameter_data_ = parameter_buffer_.data();
}

BucketStorage::BucketStorage(const at::Device& device, buckets::BucketLayout layout, std::vector<Range> own,
                             Copies copies)
    : layout_(std::move(layout)),
      forms_(layout_.placements.size()),
      copies_(copies),
      own_(std::move(own)),
      incoming_(own_.size()),
      parameters_(torch::zeros({copies == Copies::none ? 0 : layout_.elements},
                               torch::dtype(process_group::scalar_type_of(layout_.dtype)).device(device))),
      gradients_(torch::zeros({layout_.elements}, parameters_.options())),
      parameter_data_(parameters_.const_data_ptr()),
      gradient_data_(gradients_.const_data_ptr()) {
  parameter_buffer_ = streams::device_buffer(parameters_);
  gradient_buffer_ = streams::device_buffer(gradients_);
}

// Shares the bucket's memory without being a view of it to autograd, so that a program may do with it what it
// may do with a gradient of its own: detach_(), as zero_grad(false) does.
torch::Tensor BucketStorage::tensor_in(const torch::Tensor& flat, std::size_t index) const {
  const Form& form = forms_[index];
  torch::Tensor tensor = torch::empty({0}, flat.options());
  tensor.set_(flat.storage(), layout_.placements[index].offset, form.sizes, form.strides);
  return tensor;
}

bool BucketStorage::lies_in(const void* buffer, std::size_t index, const torch::Tensor& tensor) const {
  const Form& form = forms_[index];
  return tensor.layout() == torch::kStrided && tensor.dtype() == parameters_.dtype() &&
         tensor.device() == parameters_.device() &&
         tensor.const_data_ptr() == static_cast<const std::byte*>(buffer) +
                                        layout_.placements[index].offset * size_of(layout_.dtype) &&
         tensor.sizes() == form.sizes && tensor.strides() == form.strides;
}

void BucketStorage::adopt(std::size_t index, torch::Tensor& parameter, std::vector<std::int64_t> strides) {
  forms_[index] = {parameter.sizes().vec(), std::move(strides)};
  restore_parameter(index, parameter);
  restore_gradient(index, parameter);
}

bool BucketStorage::holds_parameter(std::size_t index, const torch::Tensor& parameter) const {
  return copies_ == Copies::none ? fits(index, parameter) : lies_in(parameter_data_, index, parameter);
}

bool BucketStorage::fits(std::size_t index, const torch::Tensor& parameter) const {
  return parameter.sizes() == forms_[index].sizes && parameter.dtype() == parameters_.dtype() &&
         parameter.device() == parameters_.device() && parameter.layout() == torch::kStrided;
}

bool BucketStorage::holds_gradient(std::size_t index, const torch::Tensor& parameter) const {
  const torch::Tensor& gradient = parameter.grad();
  return gradient.defined() && lies_in(gradient_data_, index, gradient);
}

void BucketStorage::restore_parameter(std::size_t index, torch::Tensor& parameter) {
  if (copies_ == Copies::none) return;
  const torch::NoGradGuard no_grad;
  const Form& form = forms_[index];
  torch::Tensor present = parameter.detach();
  const bool overlaps = present.storage().is_alias_of(parameters_.storage());
  torch::Tensor to = tensor_in(parameters_, index);
  if (copies_ == Copies::one_for_all) {
    torch::Tensor values = present;
    if (overlaps || values.strides() != form.strides) {
      values = torch::empty_strided(form.sizes, form.strides, values.options());
      values.copy_(present);
    }
    for (std::vector<Incoming>& of_part : incoming_)
      of_part.push_back({layout_.placements[index].offset, values.as_strided({values.numel()}, {1})});
  } else {
    to.copy_(overlaps ? present.clone() : present);
  }
  parameter.set_data(to);
}

void BucketStorage::write_incoming(std::size_t part) {
  const torch::NoGradGuard no_grad;
  for (const Incoming& one : incoming_[part]) {
    const std::int64_t begin = std::max(own_[part].begin, one.offset);
    const std::int64_t end = std::min(own_[part].end, one.offset + one.values.numel());
    if (begin < end)
      parameters_.narrow(0, begin, end - begin).copy_(one.values.narrow(0, begin - one.offset, end - begin));
  }
  incoming_[part].clear();
}

void BucketStorage::restore_gradient(std::size_t index, torch::Tensor& parameter) {
  const torch::NoGradGuard no_grad;
  torch::Tensor to = tensor_in(gradients_, index);
  const torch::Tensor present = parameter.grad();
  if (!present.defined()) {
    to.zero_();
  } else if (present.is_sparse()) {
    to.zero_().add_(present);
  } else {
    const torch::Tensor strided = present.layout() == torch::kStrided ? present : present.to_dense();
    const bool overlaps = strided.storage().is_alias_of(gradients_.storage());
    const torch::Tensor values = overlaps ? strided.clone() : strided;
    if (to.is_cpu()) {
      torch::add_out(to, values, torch::zeros({}));  // -0.0 would mean that it is unused
    } else {
      to.copy_(values);
    }
  }
  parameter.mutable_grad() = to;
}

void BucketStorage::mark_unused(std::size_t index) {
  if (!gradients_.is_cpu()) return;
  const torch::NoGradGuard no_grad;
  const buckets::TensorPlacement& placement = layout_.placements[index];
  optim::mark_unused(gradients_, {placement.offset, placement.offset + placement.elements});
}

std::vector<optim::ShardedOptimizer::Stretch> BucketStorage::stretches_within(const Range& range) const {
  std::vector<optim::ShardedOptimizer::Stretch> stretches;
  for (std::size_t i = 0; i < layout_.placements.size(); ++i) {
    const buckets::TensorPlacement& placement = layout_.placements[i];
    const std::int64_t next =
        i + 1 < layout_.placements.size() ? layout_.placements[i + 1].offset : layout_.elements;
    const std::int64_t begin = std::max(range.begin, placement.offset);
    const std::int64_t end = std::min(range.end, next);
    const std::int64_t elements = std::min(end, placement.offset + placement.elements) - begin;
    if (elements <= 0) continue;
    stretches.push_back({.tensor = placement.tensor,
                         .begin = begin - range.begin,
                         .end = end - range.begin,
                         .elements = elements,
                         .offset = begin - placement.offset});
  }
  return stretches;
}

std::size_t BucketStorage::index_of(TensorId tensor) const {
  const auto found = std::find_if(layout_.placements.begin(), layout_.placements.end(),
                                  [&](const buckets::TensorPlacement& one) { return one.tensor == tensor; });
  return static_cast<std::size_t>(found - layout_.placements.begin());
}

std::vector<optim::ShardedOptimizer::FlatRun> BucketStorage::runs(
    std::size_t part, const std::vector<FlatVectors>& by_group) const {
  std::vector<optim::ShardedOptimizer::FlatRun> parts;
  const auto add = [&](std::uint32_t group, const Range& range,
                       std::vector<optim::ShardedOptimizer::Stretch> stretches) {
    parts.push_back({group, parameters_.narrow(0, range.begin, range.size()),
                     gradients_.narrow(0, range.begin, range.size()), std::move(stretches)});
  };
  for (const buckets::Run& run : buckets::runs_within(layout_, own_[part])) {
    const FlatVectors& vectors = by_group[run.parameter_group];
    if (vectors.whole) {
      for (const optim::ShardedOptimizer::Stretch& one : stretches_within(run.range)) {
        const std::size_t index = index_of(one.tensor);
        parts.push_back(
            {run.parameter_group,
             tensor_in(parameters_, index),
             tensor_in(gradients_, index),
             {{.tensor = one.tensor, .begin = 0, .end = one.elements, .elements = one.elements}}});
      }
      continue;
    }
    for (std::int64_t begin = run.range.begin; begin < run.range.end; begin += vectors.longest) {
      const Range range{begin, begin + std::min(vectors.longest, run.range.end - begin)};
      std::vector<optim::ShardedOptimizer::Stretch> stretches = stretches_within(range);
      if (stretches.empty()) continue;  // the padding that makes shards equal
      if (vectors.joined) {
        add(run.parameter_group, range, std::move(stretches));
        continue;
      }
      for (const optim::ShardedOptimizer::Stretch& one : stretches)
        add(run.parameter_group, {begin + one.begin, begin + one.begin + one.elements},
            {{.tensor = one.tensor,
              .begin = 0,
              .end = one.elements,
              .elements = one.elements,
              .offset = one.offset}});
    }
  }
  return parts;
}

std::int64_t BucketStorage::incoming_bytes() const {
  std::int64_t bytes = 0;  // each part has them, as views of one tensor
  if (!incoming_.empty())
    for (const Incoming& one : incoming_.front()) bytes += static_cast<std::int64_t>(one.values.nbytes());
  return bytes;
}

void BucketStorage::zero_gradients(const Range& range) {
  if (gradient_buffer_.on_device()) {
    gradients_.narrow(0, range.begin, range.size()).zero_();
    return;
  }
  const std::int64_t size = size_of(layout_.dtype);
  std::memset(gradient_buffer_.data() + range.begin * size, 0, range.size() * size);
}

buckets::BucketWire::Flat BucketStorage::flat() const {
  std::int64_t elements = 0;
  for (const buckets::TensorPlacement& placement : layout_.placements) elements += placement.elements;
  const View parameters{
      .buffer = parameter_buffer_, .offset_bytes = 0, .count = layout_.elements, .dtype = layout_.dtype};
  View gradients = parameters;
  gradients.buffer = gradient_buffer_;
  return {
      .parameters = parameters, .gradients = gradients, .bucket_bytes = elements * size_of(layout_.dtype)};
}

const void* BucketStorage::parameter_storage() const { return parameters_.storage().unsafeGetStorageImpl(); }

const void* BucketStorage::gradient_storage() const { return gradients_.storage().unsafeGetStorageImpl(); }

}  // namespace dear::train
