#include "dear/train/model/buffer_exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/record_function.h>

namespace dear::model {
namespace {

// Takes those of floating point out of `buffers`.
std::vector<torch::Tensor> split_off_averaged(std::vector<torch::Tensor>& buffers) {
  const auto integers = std::stable_partition(
      buffers.begin(), buffers.end(), [](const torch::Tensor& tensor) { return tensor.is_floating_point(); });
  std::vector<torch::Tensor> averaged(buffers.begin(), integers);
  buffers.erase(buffers.begin(), integers);
  return averaged;
}

}  // namespace

BufferExchange::BufferExchange(const Group& group, std::vector<torch::Tensor> buffers, BufferSync how)
    : group_(group), how_(how) {
  if (how == BufferSync::averaged) {
    averaged_ = split_off_averaged(buffers);
    outlines_ = outlines_of(averaged_);
    std::int64_t elements = 0;
    for (const torch::Tensor& tensor : averaged_) elements += tensor.numel();
    if (elements > 0) sums_ = group_.allocate(elements * size_of(DType::f64));
  }
  others_.emplace(group_, buffers);
  if (how == BufferSync::at_forward) forward_.emplace(group_.duplicate(), std::move(buffers));
}

bool BufferExchange::take(std::vector<torch::Tensor> buffers) {
  std::vector<torch::Tensor> averaged;
  if (how_ == BufferSync::averaged) averaged = split_off_averaged(buffers);
  if (outlines_of(averaged) != outlines_ || !others_->take(buffers)) return false;
  averaged_ = std::move(averaged);
  if (forward_) forward_->take(buffers);
  return true;
}

void BufferExchange::at_synchronize(int root) {
  if (sums_.bytes() > 0) average();
  others_->run(root);
}

void BufferExchange::at_forward(int root) { forward_->run(root); }

void BufferExchange::average() {
  const at::DisableRecordFunctionGuard unobserved;  // operators of ours, which wait for nothing
  const torch::NoGradGuard no_grad;
  const std::int64_t elements = sums_.bytes() / size_of(DType::f64);
  const torch::Tensor all = torch::from_blob(sums_.data(), {elements}, torch::kDouble);
  const auto for_each = [&](auto visit) {
    std::int64_t begin = 0;
    for (torch::Tensor& tensor : averaged_) {
      visit(tensor, all.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
      begin += tensor.numel();
    }
  };
  for_each([](const torch::Tensor& tensor, torch::Tensor sum) { sum.copy_(tensor); });
  group_.all_reduce({.buffer = sums_, .count = elements, .dtype = DType::f64}, Reduction::average).wait();
  for_each([](torch::Tensor& tensor, const torch::Tensor& sum) { tensor.copy_(sum); });
}

}  // namespace dear::model
