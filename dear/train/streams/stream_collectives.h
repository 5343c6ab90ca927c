#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace dear {

// Collectives on tensors of a device with streams, enqueued on the stream that is current: each returns at
// once, and what is enqueued on that stream later finds the result. On the CPU, which has no streams, the
// result is there on return. Each vector is 1-D, contiguous, and has a multiple of size() elements; shard r
// is its r-th part of equal size. Every rank makes the same calls in the same order, from one thread at a
// time.
class StreamCollectives {
 public:
  virtual ~StreamCollectives() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual std::string description() const = 0;  // "c10d nccl"

  // This rank's shard becomes the sum over the ranks; the rest of the vector is whatever.
  virtual void reduce_scatter(at::Tensor& vector) = 0;
  // Each shard becomes that of the rank that owns it.
  virtual void all_gather(at::Tensor& vector) = 0;
  enum class Joined : std::uint8_t { sum, largest };
  virtual void all_reduce(at::Tensor& vector, Joined joined) = 0;
};

// The collectives of a process group of libtorch, such as one of NCCL, on tensors of this kind of device. It
// carries nothing else while a DataParallel trains on it. Make it with a communicator that is there already
// (init_process_group(device_id=...)), or the first step() waits for one on the host. ConfigError where it is
// null, or has no backend for such a device.
std::shared_ptr<StreamCollectives> stream_collectives(c10::intrusive_ptr<c10d::Backend> backend);
std::shared_ptr<StreamCollectives> stream_collectives(
    const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, c10::DeviceType device);

}  // namespace dear
