#include "dear/testing/stub_device/operators.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "dear/testing/stub_device/allocator.h"
#include "dear/testing/stub_device/fallback.h"
#include "dear/testing/stub_device/guard.h"
#include "dear/testing/stub_device/streams.h"

namespace dear::stub_device {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> type,
                 std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> device,
                 std::optional<bool> /*pinned*/, std::optional<c10::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, &allocator(), kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<c10::ScalarType> type, std::optional<c10::Layout> /*layout*/,
                         std::optional<c10::Device> device, std::optional<bool> /*pinned*/) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, &allocator(), kKeys, c10::dtype_or_default(type));
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef sizes,
                         std::optional<c10::MemoryFormat> format) {
  at::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  if (format) impl->empty_tensor_restride(*format);
  const std::size_t bytes = at::detail::computeStorageNbytes(
      self.sizes(), self.strides(), self.dtype().itemsize(), static_cast<std::size_t>(self.storage_offset()));
  if (bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides) {
  at::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(source);
  impl->set_storage_offset(offset);
  if (strides.data() == nullptr) {
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides);
  }
  const std::size_t bytes = at::detail::computeStorageNbytes(
      self.sizes(), self.strides(), self.dtype().itemsize(), static_cast<std::size_t>(offset));
  if (bytes > source.nbytes()) resize_storage(source, bytes);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<std::int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {elements}, {});
}

// Between devices the stream of the source copies, after what the other device's stream had to do, and that
// waits.
void copy_between(const at::Tensor& self, const at::Tensor& source) {
  Streams& streams = Streams::all();
  const c10::Stream from = current_stream(source.device()), to = current_stream(self.device());
  if (from != to) streams.wait(from, streams.record(to));
  streams.run(from, "aten::copy_",
              [to = alias_on_cpu(self), source = alias_on_cpu(source)] { to.copy_(source); });
  if (from != to) streams.wait(to, streams.record(from));
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const at::AutoDispatchBelowADInplaceOrView below;
  if (self.numel() == 0 && source.numel() == 0) return self;
  if (self.is_same(source)) return self;
  if (is_stub(self) && is_stub(source)) {
    copy_between(self, source);
    return self;
  }
  TORCH_CHECK(is_stub(self) ? source.is_cpu() : self.is_cpu(), "copies go between stub and the CPU, not ",
              source.device(), " and ", self.device());
  // The tensor of the CPU is kept until the copy is made, as by the allocator of pinned memory.
  const c10::Stream stream = current_stream(is_stub(self) ? self.device() : source.device());
  Streams::all().run(stream, "aten::copy_",
                     [to = is_stub(self) ? alias_on_cpu(self) : self.detach(),
                      from = is_stub(source) ? alias_on_cpu(source) : source.detach()] { to.copy_(from); });
  if (!non_blocking) Streams::all().synchronize(stream);
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& to, bool non_blocking) {
  at::Tensor self = to;
  return copy(self, source, non_blocking);
}

at::Scalar item(const at::Tensor& self) {
  Streams::all().synchronize(current_stream(self.device()));
  return alias_on_cpu(self).item();
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  allocator().recordStream(self.storage().data_ptr(), stream);
}

// The CPU's kernel draws from the process's generator: here the mask is drawn from the device's.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  if (!train.value_or(true) || p == 0) return {input.clone(), at::ones_like(input, at::kBool)};
  const at::Tensor mask = at::empty_like(input, at::kBool).bernoulli_(1 - p);
  return {input * mask * (p == 1 ? 0.0 : 1 / (1 - p)), mask};
}

// Convolutions of other devices go by a name of their own.
at::Tensor run_named(const char* name, torch::jit::Stack stack) {
  run_on_stream(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""), &stack);
  return stack.at(0).toTensor();
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
                       c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, std::int64_t groups) {
  return run_named("aten::convolution",
                   {input, weight, bias, stride, padding, dilation, transposed, output_padding, groups});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding,
    std::int64_t groups, std::array<bool, 3> mask) {
  torch::jit::Stack stack = {gradient, input,      weight,         c10::IValue(), stride, padding,
                             dilation, transposed, output_padding, groups,        mask};
  if (mask[2])
    stack[3] = std::vector<std::int64_t>{weight.size(transposed ? 1 : 0) * (transposed ? groups : 1)};
  run_on_stream(c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", ""), &stack);
  const auto tensor = [&](std::size_t i) {
    return stack.at(i).isTensor() ? stack.at(i).toTensor() : at::Tensor();
  };
  return {tensor(0), tensor(1), tensor(2)};
}

void boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack) { run_on_stream(op, stack); }

bool is_ours(const c10::OperatorName& name) {
  constexpr std::array<std::string_view, 18> kOurs = {"aten::empty",
                                                      "aten::empty_strided",
                                                      "aten::resize_",
                                                      "aten::as_strided",
                                                      "aten::view",
                                                      "aten::_reshape_alias",
                                                      "aten::unfold",
                                                      "aten::set_",
                                                      "aten::copy_",
                                                      "aten::_copy_from",
                                                      "aten::_local_scalar_dense",
                                                      "aten::record_stream",
                                                      "aten::native_dropout",
                                                      "aten::is_pinned",
                                                      "aten::_pin_memory",
                                                      "aten::convolution_overrideable",
                                                      "aten::convolution_backward_overrideable",
                                                      "aten::is_set_to"};
  return std::ranges::find(kOurs, name.name) != kOurs.end();
}

// An operator with a kernel for the CPU runs that kernel, so that its bits are the CPU's, also where it could
// be made of others. Structured ones are left to PyTorch, which allocates what they return and calls the form
// with outputs.
void register_kernels_of_cpu(torch::Library& library) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNamesForDispatchKey(c10::DispatchKey::CPU)) {
    if (!name.name.starts_with("aten::") || is_ours(name)) continue;
    const std::optional<c10::OperatorHandle> op = dispatcher.findSchema(name);
    if (!op) continue;
    const bool structured =
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    // A loss sizes its output twice, which memory of the device cannot follow.
    if (structured && !name.name.ends_with("_loss")) continue;
    const std::string overload = name.overload_name.empty() ? "" : "." + name.overload_name;
    library.impl((name.name + overload).c_str(), torch::CppFunction::makeFromBoxedFunction<&boxed>());
  }
}

}  // namespace

void register_operators() {
  static auto* const fallback =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&boxed>());
  static auto* const aten =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  register_kernels_of_cpu(*aten);
  aten->impl("empty.memory_format", &empty);
  aten->impl("empty_strided", &empty_strided);
  aten->impl("resize_", &resize);
  aten->impl("as_strided", &at::native::as_strided_tensorimpl);
  aten->impl("view", &at::native::view);
  aten->impl("_reshape_alias", &at::native::_reshape_alias);
  aten->impl("unfold", &at::native::unfold);
  aten->impl("set_.source_Storage_storage_offset", &set_storage);
  aten->impl("set_.source_Storage", &set_whole_storage);
  aten->impl("set_.source_Tensor", &at::native::set_tensor_);
  aten->impl("copy_", &copy);
  aten->impl("_copy_from", &copy_from);
  aten->impl("_local_scalar_dense", &item);
  aten->impl("record_stream", &record_stream);
  aten->impl("native_dropout", &native_dropout);
  aten->impl("convolution_overrideable", &convolution);
  aten->impl("convolution_backward_overrideable", &convolution_backward);
}

}  // namespace dear::stub_device
