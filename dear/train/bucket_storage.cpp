#include "dear/train/bucket_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dear/train/torch_types.h"

namespace dear::train {
namespace {

// An optimiser goes over its vectors a dozen times, operator by operator: they should stay in a core's cache
// meanwhile. A multiple of every vector width.
constexpr std::int64_t kLongestRun = 128 * 1024;

// The tensor keeps the buffer alive.
torch::Tensor flat_tensor(const Buffer& buffer, const BucketLayout& layout) {
  return torch::from_blob(
      buffer.data(), {layout.elements}, [buffer](void*) {}, torch::dtype(scalar_type_of(layout.dtype)));
}

}  // namespace

BucketStorage::BucketStorage(const Group& group, BucketLayout layout, std::vector<Range> own, Copies copies)
    : layout_(std::move(layout)),
      copies_(copies),
      own_(std::move(own)),
      incoming_(own_.size()),
      parameter_buffer_(copies == Copies::one_for_all ? Group(group).allocate_shared(layout_.bytes())
                                                      : Group(group).allocate(layout_.bytes())),
      gradient_buffer_(Group(group).allocate(layout_.bytes())),
      parameters_(flat_tensor(parameter_buffer_, layout_)),
      gradients_(flat_tensor(gradient_buffer_, layout_)) {}

torch::Tensor BucketStorage::view(const torch::Tensor& flat, std::size_t index,
                                  const torch::Tensor& like) const {
  return flat.as_strided(like.sizes(), like.strides(), layout_.placements[index].offset);
}

const void* BucketStorage::address(const Buffer& buffer, std::size_t index) const {
  return buffer.data() + layout_.placements[index].offset * size_of(layout_.dtype);
}

void BucketStorage::adopt(std::size_t index, torch::Tensor& parameter) {
  restore_parameter(index, parameter);
  restore_gradient(index, parameter);
}

bool BucketStorage::holds_parameter(std::size_t index, const torch::Tensor& parameter) const {
  return parameter.data_ptr() == address(parameter_buffer_, index);
}

bool BucketStorage::holds_gradient(std::size_t index, const torch::Tensor& parameter) const {
  const torch::Tensor& gradient = parameter.grad();
  return gradient.defined() && gradient.layout() == torch::kStrided &&
         gradient.data_ptr() == address(gradient_buffer_, index);
}

void BucketStorage::restore_parameter(std::size_t index, torch::Tensor& parameter) {
  const torch::NoGradGuard no_grad;
  if (copies_ == Copies::one_for_all) {
    torch::Tensor values = parameter.detach();
    if (!values.is_non_overlapping_and_dense()) values = values.contiguous();
    torch::Tensor place = view(parameters_, index, values);
    for (std::vector<Incoming>& of_part : incoming_)
      of_part.push_back({layout_.placements[index].offset, values.as_strided({values.numel()}, {1})});
    parameter.set_data(place);
    return;
  }
  torch::Tensor place = view(parameters_, index, parameter);
  place.copy_(parameter);
  parameter.set_data(place);
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
  torch::Tensor place = view(gradients_, index, parameter);
  const torch::Tensor present = parameter.grad();
  if (present.defined()) {
    place.copy_(present.layout() == torch::kStrided ? present : present.to_dense());
  } else {
    place.zero_();
  }
  parameter.mutable_grad() = place;
}

std::vector<ElementwiseOptimizer::FlatRun> BucketStorage::runs(std::size_t part) const {
  std::vector<ElementwiseOptimizer::FlatRun> parts;
  for (const Run& run : runs_within(layout_, own_[part])) {
    for (std::int64_t begin = run.range.begin; begin < run.range.end; begin += kLongestRun) {
      const std::int64_t count = std::min(kLongestRun, run.range.end - begin);
      parts.push_back({run.rule, parameters_.narrow(0, begin, count), gradients_.narrow(0, begin, count)});
    }
  }
  return parts;
}

void BucketStorage::zero_gradients(const Range& range) {
  const std::int64_t size = size_of(layout_.dtype);
  std::memset(gradient_buffer_.data() + range.begin * size, 0, range.count() * size);
}

BucketWire::Flat BucketStorage::flat() const {
  std::int64_t elements = 0;
  for (const TensorPlacement& placement : layout_.placements) elements += placement.elements;
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
