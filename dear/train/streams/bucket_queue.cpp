#include "dear/train/streams/bucket_queue.h"

#include <utility>

#include "dear/base/vocabulary/error.h"
#include "dear/train/streams/own_operators.h"

namespace dear::streams {
namespace {

struct DeviceRegion : Buffer::Region {
  explicit DeviceRegion(at::Tensor flat) : tensor(std::move(flat)) {
    data = static_cast<std::byte*>(tensor.data_ptr());
    bytes = static_cast<std::int64_t>(tensor.nbytes());
    on_device = true;
  }
  const at::Tensor tensor;
};

at::Tensor tensor_of(const View& view) {
  const at::Tensor& flat = static_cast<const DeviceRegion&>(*view.buffer.region()).tensor;
  return flat.narrow(0, view.offset_bytes / size_of(view.dtype), view.count);
}

}  // namespace

Buffer device_buffer(const at::Tensor& tensor) { return Buffer(std::make_shared<DeviceRegion>(tensor)); }

void BucketQueue::enqueue(const Request& request, Payload payload) {
  const OwnOperators own;
  const bool of_gradients = payload == Payload::gradients;
  if (of_gradients) streams_.follow(Guard::after_gradients);
  const auto guard = streams_.on_communication();
  at::Tensor vector = tensor_of(request.view);
  switch (request.collective) {
    case Collective::reduce_scatter: {
      collectives_->reduce_scatter(vector);
      const std::int64_t elements = vector.numel() / collectives_->size();
      vector.narrow(0, collectives_->rank() * elements, elements).div_(collectives_->size());
      break;
    }
    case Collective::all_reduce:
      collectives_->all_reduce(vector, StreamCollectives::Joined::sum);
      vector.div_(collectives_->size());
      break;
    case Collective::all_gather:
      collectives_->all_gather(vector);
      break;
    default:
      throw ScheduleError("no device can do \"" + describe(request) + "\": train with policy dear");
  }
  streams_.enqueued(static_cast<BucketId>(request.label), of_gradients ? Part::gradients : Part::parameters);
}

}  // namespace dear::streams
