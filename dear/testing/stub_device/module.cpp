#include "dear/testing/stub_device/module.h"

#include <torch/types.h>

namespace dear::stub_device {
namespace {

// Where a tensor lies is set when it is made; what follows is TensorImpl::shallow_copy_from() without its
// check.
struct Placed : c10::TensorImpl {
  static void become(c10::TensorImpl& tensor, const c10::TensorImpl& other) {
    tensor.*(&Placed::storage_) = other.*(&Placed::storage_);
    tensor.*(&Placed::device_opt_) = other.*(&Placed::device_opt_);
    tensor.*(&Placed::key_set_) = other.*(&Placed::key_set_);
    tensor.set_storage_offset(other.storage_offset());
  }
};

}  // namespace

void move(torch::nn::Module& module, c10::Device to) {
  std::vector<torch::Tensor> tensors = module.parameters();
  for (const torch::Tensor& buffer : module.buffers()) tensors.push_back(buffer);
  for (torch::Tensor& tensor : tensors) {
    const torch::Tensor there = tensor.detach().to(to);
    const torch::NoGradGuard no_grad;
    Placed::become(*tensor.unsafeGetTensorImpl(), *there.unsafeGetTensorImpl());
  }
}

}  // namespace dear::stub_device
