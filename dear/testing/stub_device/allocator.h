#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace dear::stub_device {

// Memory of the device: the host's, kept in blocks by stream as the allocator of CUDA keeps them. A block
// that is freed goes to the next tensor of its size on the stream that it was made on, at once and last freed
// first; one that was recorded on other streams only when these have passed the point at which it was freed.
// Blocks are never given back to the host, so a kernel that comes too late finds wrong bits, never unmapped
// memory.
[[nodiscard]] c10::DeviceAllocator& allocator();

// Makes the storage larger or smaller, with its content, on the current stream of its device.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

}  // namespace dear::stub_device
