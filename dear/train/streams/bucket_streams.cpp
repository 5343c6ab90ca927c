#include "dear/train/streams/bucket_streams.h"

#include <algorithm>

#include "dear/base/vocabulary/error.h"

namespace dear::streams {
namespace {

// Not every release of libtorch tells: without, a capture is not refused.
template <typename Stream>
bool is_captured(const Stream& stream) {
  if constexpr (requires { stream.is_capturing(); })
    return stream.is_capturing();
  else
    return false;
}

}  // namespace

BucketStreams::BucketStreams(c10::Device device, std::size_t buckets, Guard without)
    : device_(device), without_(without) {
  if (device.is_cpu()) return;
  device_streams_.emplace(device.type());
  // The stream has a high priority: a collective that the next layers wait for goes before kernels that fill
  // the device.
  communication_ = device_streams_->getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  arrival_.emplace(device.type());
  end_.emplace(device.type());
  for (std::size_t i = 0; i < 2 * buckets; ++i) written_.push_back({c10::Event(device.type())});
  waited_by_any_.resize(written_.size());
}

BucketStreams::~BucketStreams() {
  if (!communication_ || without_ == Guard::drain) return;
  try {
    device_streams_->synchronizeStream(*communication_);
  } catch (const std::exception&) {
    // The device has failed, which the program's next operator on it says.
  }
}

void BucketStreams::require_no_capture(const c10::Stream& stream) const {
  if (is_captured(stream))
    throw ConfigError(
        "a graph of the device is being captured, in which the collectives of a DataParallel would not be "
        "repeated in order: train without the capture, or capture what holds no trained parameter");
}

void BucketStreams::note_current() {
  if (!communication_) return;
  const c10::Stream stream = current();
  require_no_capture(stream);
  const Lock lock(mutex_);
  if (std::find(noted_.begin(), noted_.end(), stream) == noted_.end()) noted_.push_back(stream);
}

void BucketStreams::follow(const c10::Stream& stream) {
  if (stream == *communication_) return;
  arrival_->record(stream);
  arrival_->block(*communication_);
}

// A stream that was noted may have gone on since: the wait is then for more than the gradients, which is
// never too early.
void BucketStreams::follow(Guard why) {
  if (!communication_) return;
  const c10::Stream stream = current();
  require_no_capture(stream);
  const Lock lock(mutex_);
  if (without_ != why) {
    std::erase(noted_, stream);
    if (without_ != Guard::every_gradient)
      for (const c10::Stream& noted : noted_) follow(noted);
    follow(stream);
  }
  noted_.clear();
}

void BucketStreams::enqueued(BucketId bucket, Part part) {
  if (!communication_) return;
  const Lock lock(mutex_);
  Written& written = written_[index_of(bucket, part)];
  written.event.record(*communication_);
  ++written.times;
  dirty_ = true;
}

// Whoever has waited for the parameters may accumulate gradients: zeros come before.
void BucketStreams::updated(BucketId bucket, const std::function<void()>& zero) {
  if (without_ != Guard::zeros_first) zero();
  enqueued(bucket, Part::gradients);
  enqueued(bucket, Part::parameters);
  if (without_ == Guard::zeros_first) zero();
}

void BucketStreams::adopted() {
  if (!communication_ || without_ == Guard::after_adoption) return;
  const c10::Stream stream = current();
  const Lock lock(mutex_);
  follow(stream);
  for (Written& written : written_) {
    written.event.record(*communication_);
    ++written.times;
  }
  dirty_ = true;
}

void BucketStreams::await(std::size_t index, const c10::Stream& stream) {
  const Written& written = written_[index];
  if (written.times == 0 || stream == *communication_) return;
  std::vector<std::uint64_t>& waited =
      without_ == Guard::every_stream ? waited_by_any_ : waited_[stream.id()];
  if (waited.empty()) waited.resize(written_.size());
  if (waited[index] == written.times) return;
  require_no_capture(stream);
  waited[index] = written.times;
  written.event.block(stream);
}

void BucketStreams::await(BucketId bucket, Part part) {
  if (!communication_) return;
  if (without_ == (part == Part::parameters ? Guard::before_parameters : Guard::before_gradients)) return;
  const c10::Stream stream = current();
  const Lock lock(mutex_);
  await(index_of(bucket, part), stream);
}

void BucketStreams::await_all() {
  if (!communication_) return;
  const c10::Stream stream = current();
  const Lock lock(mutex_);
  for (std::size_t index = 0; index < written_.size(); ++index) await(index, stream);
}

void BucketStreams::pass_to_communication(const at::Tensor& argument) {
  if (!communication_) return;
  follow(Guard::after_program);
  keep_for_communication(argument);
}

void BucketStreams::pass_to_current(const at::Tensor& result) {
  if (!communication_) return;
  const c10::Stream stream = current();
  const Lock lock(mutex_);
  if (without_ != Guard::handed_over) {
    end_->record(*communication_);
    end_->block(stream);
  }
  if (without_ != Guard::kept_result) keep(result, stream);
}

void BucketStreams::run_on_communication(const std::function<void()>& act) {
  follow(Guard::after_program);
  {
    const auto guard = on_communication();
    act();
  }
  pass_to_current({});
}

// The allocator gives memory that is freed to the next tensor of the stream it was allocated on, unless it
// knows of another stream's use.
void BucketStreams::keep(const at::Tensor& tensor, const c10::Stream& reader) const {
  if (tensor.defined() && tensor.has_storage() && tensor.device() == device_)
    device_streams_->recordDataPtrOnStream(tensor.storage().data_ptr(), reader);
}

void BucketStreams::keep_for_communication(const at::Tensor& tensor) {
  if (communication_ && without_ != Guard::kept_options) keep(tensor, *communication_);
}

void BucketStreams::keep_for_current(const at::Tensor& tensor) {
  if (communication_ && without_ != Guard::kept_tensor) keep(tensor, current());
}

bool BucketStreams::idle() {
  if (!communication_) return true;
  const Lock lock(mutex_);
  if (!dirty_) return true;
  if (!device_streams_->queryStream(*communication_)) return false;
  dirty_ = false;
  return true;
}

void BucketStreams::synchronize() {
  if (!communication_ || without_ == Guard::host) return;
  device_streams_->synchronizeStream(*communication_);
}

}  // namespace dear::streams
