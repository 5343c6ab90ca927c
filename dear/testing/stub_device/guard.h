#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace dear::stub_device {

inline constexpr auto kType = c10::DeviceType::PrivateUse1;

[[nodiscard]] inline bool is_stub(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

// Tells PyTorch of the device: its memory, its streams and events, its generators of random numbers.
void register_guard();

// Returns that of this thread.
[[nodiscard]] c10::Stream current_stream(c10::Device device);

}  // namespace dear::stub_device
