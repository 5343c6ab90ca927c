#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "dear/base/vocabulary/ids.h"
#include "dear/train/streams/guard.h"

namespace dear::streams {

// A part of a bucket that is written on the communication stream.
enum class Part : std::uint8_t { parameters, gradients };

// The order, on a device, between a program's streams and the one communication stream of a training, on
// which collectives and updates are enqueued: docs/internals/training.md. The host never waits, save in
// synchronize() and in the destructor. On the CPU, which has no streams, everything here does nothing.
//
// Any method may be called on any thread; "the current stream" is that thread's.
class BucketStreams {
 public:
  BucketStreams(c10::Device device, std::size_t buckets, Guard without = Guard::none);
  ~BucketStreams();  // waits for the communication stream
  BucketStreams(const BucketStreams&) = delete;
  BucketStreams& operator=(const BucketStreams&) = delete;

  // While the result lives the communication stream is the current one.
  [[nodiscard]] c10::OptionalStreamGuard on_communication() const {
    return communication_ ? c10::OptionalStreamGuard(*communication_) : c10::OptionalStreamGuard();
  }
  // The current stream has written gradients: the next follow() waits for it. ConfigError while a graph is
  // captured on it.
  void note_current();
  // The communication stream waits for all that is enqueued on the streams that were noted, and on the
  // current one. ConfigError while a graph is captured on it. `why` is the guard that this is.
  void follow(Guard why);
  // Notes that the last task enqueued on the communication stream writes this part of the bucket.
  void enqueued(BucketId bucket, Part part);
  // An update of the bucket was enqueued there; `zero` enqueues the zeros of its gradients. Notes both parts.
  void updated(BucketId bucket, const std::function<void()>& zero);
  // Notes that the last task enqueued on the current stream writes all of every bucket.
  void adopted();
  // The current stream waits for the last that writes the part. Each stream waits for it once.
  void await(BucketId bucket, Part part);
  void await_all();
  // The communication stream waits for all that is enqueued on the current one, and may be the last to use
  // `argument`, which was made there. ConfigError while a graph is captured on the current stream.
  void pass_to_communication(const at::Tensor& argument);
  // The current stream waits for all that is enqueued on the communication stream, and will be the last to
  // use `result`, which was made there.
  void pass_to_current(const at::Tensor& result);
  // Runs `act` with the communication stream as the current one: what it enqueues there waits for all that
  // is enqueued on the current stream, and what is enqueued on that later waits for it.
  void run_on_communication(const std::function<void()>& act);
  // The communication stream will read this tensor, made on another one, whose owner may let go of it.
  void keep_for_communication(const at::Tensor& tensor);
  // The current stream will read this tensor, made on any, whose owner may let go of it. Nothing to do for
  // one that is undefined, sparse or elsewhere.
  void keep_for_current(const at::Tensor& tensor);

  // Whether the device is through with all that was enqueued, so that no stream has to wait.
  [[nodiscard]] bool idle();
  void synchronize();  // the host waits

 private:
  struct Written {
    c10::Event event;
    std::uint64_t times = 0;
  };
  using Lock = std::lock_guard<std::mutex>;
  [[nodiscard]] c10::Stream current() const { return device_streams_->getStream(device_); }
  void require_no_capture(const c10::Stream& stream) const;
  void await(std::size_t index, const c10::Stream& stream);
  void follow(const c10::Stream& stream);
  void keep(const at::Tensor& tensor, const c10::Stream& reader) const;
  [[nodiscard]] static std::size_t index_of(BucketId bucket, Part part) {
    return 2 * bucket + static_cast<std::size_t>(part);
  }

  const c10::Device device_;
  const Guard without_;
  std::optional<c10::impl::VirtualGuardImpl> device_streams_;  // none on the CPU
  std::optional<c10::Stream> communication_;

  std::mutex mutex_;
  std::optional<c10::Event> arrival_, end_;
  std::vector<c10::Stream> noted_;
  std::vector<Written> written_;  // by bucket and part
  // By stream, then bucket and part: how often it was written when the stream last waited.
  std::unordered_map<c10::StreamId, std::vector<std::uint64_t>> waited_;
  std::vector<std::uint64_t> waited_by_any_;  // where a guard is taken away
  bool dirty_ = false;                        // enqueued since the device was last found idle
};

}  // namespace dear::streams
