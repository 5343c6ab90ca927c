#include "dear/train/model/tensor_broadcast.h"

#include <algorithm>
#include <utility>

#include <ATen/record_function.h>

#include "dear/base/vocabulary/units.h"

namespace dear::model {
namespace {

constexpr std::int64_t kStagingBytes = 16 * kMiB;

std::int64_t padded_bytes(const torch::Tensor& tensor) {
  return (static_cast<std::int64_t>(tensor.nbytes()) + 63) / 64 * 64;
}

}  // namespace

std::vector<Outline> outlines_of(const std::vector<torch::Tensor>& tensors) {
  std::vector<Outline> outlines;
  for (const torch::Tensor& tensor : tensors)
    outlines.push_back({tensor.sizes().vec(), tensor.scalar_type(), tensor.device()});
  return outlines;
}

TensorBroadcast::TensorBroadcast(Group group, std::vector<torch::Tensor> tensors)
    : group_(std::move(group)), tensors_(std::move(tensors)) {
  if (group_.size() == 1) tensors_.clear();
  std::erase_if(tensors_, [](const torch::Tensor& tensor) { return tensor.numel() == 0; });
  outlines_ = outlines_of(tensors_);
  std::int64_t total = 0;
  std::int64_t largest = 0;
  for (const torch::Tensor& tensor : tensors_) {
    total += padded_bytes(tensor);
    largest = std::max(largest, padded_bytes(tensor));
  }
  if (total > 0) staging_ = group_.allocate(std::min(total, std::max(largest, kStagingBytes)));
}

bool TensorBroadcast::take(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> now = tensors;
  if (group_.size() == 1) now.clear();
  std::erase_if(now, [](const torch::Tensor& tensor) { return tensor.numel() == 0; });
  if (outlines_of(now) != outlines_) return false;
  tensors_ = std::move(now);
  return true;
}

torch::Tensor TensorBroadcast::staged(const torch::Tensor& tensor, std::int64_t offset) const {
  return torch::from_blob(staging_.data() + offset, tensor.sizes(),
                          torch::dtype(tensor.scalar_type()).requires_grad(false));
}

void TensorBroadcast::run(int root) {
  const at::DisableRecordFunctionGuard unobserved;  // operators of ours, which wait for nothing
  const torch::NoGradGuard no_grad;
  std::int64_t filled = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (filled + padded_bytes(tensors_[i]) > staging_.bytes()) {
      send(first, i, root);
      first = i;
      filled = 0;
    }
    filled += padded_bytes(tensors_[i]);
  }
  if (first < tensors_.size()) send(first, tensors_.size(), root);
}

void TensorBroadcast::send(std::size_t first, std::size_t last, int root) {
  const auto for_each = [&](auto visit) {
    std::int64_t offset = 0;
    for (std::size_t i = first; i < last; ++i) {
      visit(tensors_[i], staged(tensors_[i], offset));
      offset += padded_bytes(tensors_[i]);
    }
    return offset;
  };
  std::int64_t bytes = 0;
  if (group_.rank() == root || root == kAll) {
    bytes = for_each([](const torch::Tensor& tensor, torch::Tensor stage) { stage.copy_(tensor); });
  } else {
    bytes = for_each([](const torch::Tensor&, const torch::Tensor&) {});
  }
  const View view{.buffer = staging_, .offset_bytes = 0, .count = bytes, .dtype = DType::u8};
  (root == kAll ? group_.all_reduce(view, Reduction::bitwise_or) : group_.broadcast(view, root)).wait();
  if (group_.rank() != root) {
    for_each([](torch::Tensor tensor, const torch::Tensor& stage) { tensor.copy_(stage); });
  }
}

}  // namespace dear::model
