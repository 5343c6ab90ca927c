#include "dear/testing/stub_device/autocast.h"

#include <ATen/ATen.h>
#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace dear::stub_device {

// PyTorch's macros take the library by the name `m`, and types without their namespace.
void register_autocast() {
  using at::IntArrayRef, at::Scalar, at::ScalarType, at::Tensor;
  static auto* const others = new torch::Library(torch::Library::IMPL, "_",
                                                 c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
  static auto* const aten = new torch::Library(torch::Library::IMPL, "aten",
                                               c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  torch::Library& m = *aten;
#define DEAR_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define DEAR_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define DEAR_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define DEAR_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(DEAR_LOWER_PRECISION)
  AT_FORALL_FP32(DEAR_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(DEAR_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(DEAR_PROMOTE)
}

}  // namespace dear::stub_device
