#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>

#include "dear/collective/nccl/cuda.h"

namespace dear::collective {

// One communicator of NCCL and its stream. Non-blocking: what NCCL is at is asked for while time is left; a
// failure or the deadline ends it with ncclCommAbort, and every wait with it.
class Communicator {
 public:
  // All errors of make_nccl().
  explicit Communicator(const NcclOptions& options);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  // Queues what `calls` calls, as one operation of NCCL.
  using Calls = std::function<ncclResult_t(ncclComm_t communicator, cudaStream_t stream)>;
  void queue(const std::string& what, const Calls& calls, Deadline deadline);
  // Makes the stream wait for an event; records one in it.
  void wait_on_device(cudaEvent_t event);
  void record(cudaEvent_t event);
  // Waits on the host.
  void wait(const std::string& what, cudaEvent_t event, Deadline deadline);

  // From any thread: what runs or comes fails with this reason.
  void abort(const std::string& reason) noexcept;
  // ncclCommAbort: ends what is queued. From the thread that queues; nothing may be called afterwards.
  void end() noexcept;

 private:
  void start(const NcclOptions& options);
  void settle(const std::string& what, ncclResult_t result, Deadline deadline);
  void throw_if_aborted();
  template <typename Done>
  void poll(const std::string& what, Deadline deadline, const Done& done);

  const int rank_;
  const int device_;
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;
  std::string reason_;
};

}  // namespace dear::collective
