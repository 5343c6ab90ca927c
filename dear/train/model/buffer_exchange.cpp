#include "dear/train/model/buffer_exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/record_function.h>

#include "dear/train/optim/torch_types.h"

namespace dear::model {
namespace {

// Takes those out of `buffers` that groups average, which are of floating point; by their types.
std::vector<torch::Tensor> split_off_averaged(std::vector<torch::Tensor>& buffers) {
  const auto others = std::stable_partition(buffers.begin(), buffers.end(), [](const torch::Tensor& tensor) {
    return tensor.is_floating_point() && optim::dtype_of(tensor.scalar_type());
  });
  std::vector<torch::Tensor> averaged(buffers.begin(), others);
  std::stable_sort(averaged.begin(), averaged.end(), [](const torch::Tensor& a, const torch::Tensor& b) {
    return a.scalar_type() < b.scalar_type();
  });
  buffers.erase(buffers.begin(), others);
  return averaged;
}

using Tensors = std::vector<torch::Tensor>::iterator;

// The end of the tensors that are of the first one's type.
Tensors end_of_type(Tensors first, Tensors end) {
  return std::find_if(first, end, [type = first->scalar_type()](const torch::Tensor& tensor) {
    return tensor.scalar_type() != type;
  });
}

}  // namespace

BufferExchange::BufferExchange(const Group& group, std::vector<torch::Tensor> buffers, BufferSync how)
    : group_(group), how_(how) {
  if (how == BufferSync::averaged) {
    averaged_ = split_off_averaged(buffers);
    outlines_ = outlines_of(averaged_);
    std::int64_t most = 0;
    for (auto first = averaged_.begin(); first != averaged_.end();) {
      std::int64_t bytes = 0;
      for (const auto end = end_of_type(first, averaged_.end()); first != end; ++first)
        bytes += static_cast<std::int64_t>(first->nbytes());
      most = std::max(most, bytes);
    }
    if (most > 0) staging_ = group_.allocate(most);
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
  if (staging_.bytes() > 0) average();
  others_->run(root);
}

void BufferExchange::at_forward(int root) { forward_->run(root); }

// The tensors of one type at a time, so that the means have the bits that they would have in a bucket of
// gradients.
void BufferExchange::average() {
  const at::DisableRecordFunctionGuard unobserved;  // operators of ours, which wait for nothing
  const torch::NoGradGuard no_grad;
  for (auto first = averaged_.begin(); first != averaged_.end();) {
    const auto end = end_of_type(first, averaged_.end());
    std::int64_t count = 0;
    const auto staged = [&](const torch::Tensor& tensor) {
      auto* memory = staging_.data() + count * static_cast<std::int64_t>(tensor.element_size());
      count += tensor.numel();
      return torch::from_blob(memory, tensor.sizes(), torch::dtype(tensor.scalar_type()));
    };
    for (auto tensor = first; tensor != end; ++tensor) staged(*tensor).copy_(*tensor);
    group_
        .all_reduce({.buffer = staging_, .count = count, .dtype = *optim::dtype_of(first->scalar_type())},
                    Reduction::average)
        .wait();
    count = 0;
    for (; first != end; ++first) first->copy_(staged(*first));
  }
}

}  // namespace dear::model
