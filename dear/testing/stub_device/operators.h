#pragma once

namespace dear::stub_device {

// Registers memory, views, copies, and all operators that have kernels for the CPU.
void register_operators();

}  // namespace dear::stub_device
