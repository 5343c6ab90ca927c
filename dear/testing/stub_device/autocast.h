#pragma once

namespace dear::stub_device {

// Operators under autocast on the device: in lower precision or in fp32, as those of CUDA.
void register_autocast();

}  // namespace dear::stub_device
