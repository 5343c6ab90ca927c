#include "dear/train/model/tensor_broadcast.h"

#include <algorithm>
#include <utility>

#include "dear/base/vocabulary/units.h"
#include "dear/comm/process_group/torch_types.h"
#include "dear/train/autograd/operator_observer.h"

namespace dear::model {
namespace {

constexpr std::int64_t kStagingBytes = 16 * kMiB;

std::int64_t padded_bytes(const torch::Tensor& tensor) {
  return (static_cast<std::int64_t>(tensor.nbytes()) + 63) / 64 * 64;
}

}  // namespace

// Drops what need not travel; the outlines of the others.
std::vector<TensorBroadcast::Outline> TensorBroadcast::keep(std::vector<torch::Tensor>& tensors) const {
  if (group_.size() == 1) tensors.clear();
  std::erase_if(tensors, [](const torch::Tensor& tensor) { return tensor.numel() == 0; });
  std::vector<Outline> outlines;
  for (const torch::Tensor& tensor : tensors)
    outlines.push_back({tensor.sizes().vec(), tensor.scalar_type(), tensor.device()});
  return outlines;
}

TensorBroadcast::TensorBroadcast(Group group, std::vector<torch::Tensor> tensors)
    : group_(std::move(group)), tensors_(std::move(tensors)), outlines_(keep(tensors_)) {
  std::int64_t total = 0, largest = 0;
  for (const torch::Tensor& tensor : tensors_) {
    total += padded_bytes(tensor);
    largest = std::max(largest, padded_bytes(tensor));
  }
  if (total > 0) staging_ = group_.allocate(std::min(total, std::max(largest, kStagingBytes)));
}

bool TensorBroadcast::take(std::vector<torch::Tensor> tensors) {
  if (keep(tensors) != outlines_) return false;
  tensors_ = std::move(tensors);
  return true;
}

torch::Tensor TensorBroadcast::staged(const torch::Tensor& tensor, std::int64_t offset) const {
  return torch::from_blob(staging_.data() + offset, tensor.sizes(),
                          torch::dtype(tensor.scalar_type()).requires_grad(false));
}

void TensorBroadcast::run(int root) {
  const autograd::Unobserved unobserved;  // operators of ours, which wait for nothing
  const torch::NoGradGuard no_grad;
  std::int64_t filled = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const bool other_type = root == kMean && tensors_[i].scalar_type() != tensors_[first].scalar_type();
    if (filled + padded_bytes(tensors_[i]) > staging_.bytes() || other_type) {
      send(first, i, root);
      first = i;
      filled = 0;
    }
    filled += padded_bytes(tensors_[i]);
  }
  if (first < tensors_.size()) send(first, tensors_.size(), root);
}

void TensorBroadcast::send(std::size_t first, std::size_t last, int root) {
  std::int64_t bytes = 0;
  for (std::size_t i = first; i < last; bytes += padded_bytes(tensors_[i++]))
    if (root < 0 || group_.rank() == root) staged(tensors_[i], bytes).copy_(tensors_[i]);
  const DType dtype = root == kMean ? *process_group::dtype_of(tensors_[first].scalar_type()) : DType::u8;
  const View view{.buffer = staging_, .offset_bytes = 0, .count = bytes / size_of(dtype), .dtype = dtype};
  (root < 0 ? group_.all_reduce(view, root == kMean ? Reduction::average : Reduction::bitwise_or)
            : group_.broadcast(view, root))
      .wait();
  bytes = 0;
  for (std::size_t i = first; i < last; bytes += padded_bytes(tensors_[i++]))
    if (group_.rank() != root) tensors_[i].copy_(staged(tensors_[i], bytes));
}

}  // namespace dear::model
