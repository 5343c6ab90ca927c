#pragma once

#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>

#include "dear/comm/buckets/on_device.h"
#include "dear/train/streams/bucket_streams.h"
#include "dear/train/streams/stream_collectives.h"

namespace dear::streams {

// Enqueues collectives on buckets of a device on the communication stream. On the CPU, which has no streams,
// each has ended when enqueue() returns.
class BucketQueue : public buckets::DeviceQueue {
 public:
  // `streams` outlives this.
  BucketQueue(std::shared_ptr<StreamCollectives> collectives, BucketStreams& streams)
      : collectives_(std::move(collectives)), streams_(streams) {}
  void enqueue(const Request& request, Payload payload) override;
  [[nodiscard]] StreamCollectives& collectives() const { return *collectives_; }

 private:
  std::shared_ptr<StreamCollectives> collectives_;
  BucketStreams& streams_;
};

// Returns the memory of a tensor on a device as a buffer: it keeps the tensor's memory. Its rank takes it to
// a DeviceQueue, and to no group.
Buffer device_buffer(const at::Tensor& tensor);

}  // namespace dear::streams
