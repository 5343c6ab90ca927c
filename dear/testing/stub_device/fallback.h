#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace dear::stub_device {

// Runs any operator that has a kernel for the CPU: on the current stream of the device of its tensors, on the
// same memory. What it returns anew has the shape that the kernel gives for zeros of the same shapes, which
// it computes at once. An operator whose result is a value, or whose shape depends on values, waits for the
// stream.
//
// As on a GPU, tensors of the CPU are taken only where they are scalars, whose value is read at once.
void run_on_stream(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// A tensor of the CPU on the same memory. It does not keep the memory.
[[nodiscard]] at::Tensor alias_on_cpu(const at::Tensor& tensor);

}  // namespace dear::stub_device
