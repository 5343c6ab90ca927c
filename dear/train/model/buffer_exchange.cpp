#include "dear/train/model/buffer_exchange.h"

#include <algorithm>
#include <utility>

#include "dear/comm/process_group/torch_types.h"

namespace dear::model {
namespace {

// Takes those out of `buffers` that are averaged, which are of floating point; by their types.
std::vector<torch::Tensor> split_off_averaged(std::vector<torch::Tensor>& buffers, BufferSync how) {
  const auto others = std::stable_partition(buffers.begin(), buffers.end(), [&](const torch::Tensor& tensor) {
    return how == BufferSync::averaged && tensor.is_floating_point() &&
           process_group::dtype_of(tensor.scalar_type());
  });
  std::vector<torch::Tensor> averaged(buffers.begin(), others);
  buffers.erase(buffers.begin(), others);
  std::stable_sort(averaged.begin(), averaged.end(), [](const torch::Tensor& a, const torch::Tensor& b) {
    return a.scalar_type() < b.scalar_type();
  });
  return averaged;
}

}  // namespace

BufferExchange::BufferExchange(const Group& group, std::vector<torch::Tensor> buffers, BufferSync how)
    : group_(group), how_(how) {
  averaged_.emplace(group_, split_off_averaged(buffers, how));
  others_.emplace(group_, buffers);
  if (how == BufferSync::at_forward) forward_.emplace(group_.duplicate(), std::move(buffers));
}

bool BufferExchange::take(std::vector<torch::Tensor> buffers) {
  std::vector<torch::Tensor> averaged = split_off_averaged(buffers, how_);
  if (!averaged_->take(averaged) || !others_->take(buffers)) return false;
  if (forward_) forward_->take(buffers);
  return true;
}

void BufferExchange::at_synchronize(int root) {
  averaged_->average();
  others_->run(root);
}

void BufferExchange::at_forward(int root) { forward_->run(root); }

}  // namespace dear::model
