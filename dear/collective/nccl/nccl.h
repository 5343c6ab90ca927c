#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "dear/base/deadline.h"
#include "dear/collective/backend.h"
#include "dear/collective/group.h"

// NCCL: collectives on the memory of NVIDIA GPUs, one rank for each. A module of its own (base/module.h),
// built where the CUDA toolkit and NCCL are found.
namespace dear::collective {

// A backend whose collectives run on a CUDA stream of its own, so that a program can order its kernels and
// these on the device, without a thread that waits.
class DeviceBackend : public Backend {
 public:
  using Event = void*;  // a cudaEvent_t of the backend's device

  // Puts the collective behind all earlier ones and behind `after` (null: nothing), and records `done` behind
  // it. Returns as soon as it is queued. Peers are not compared: whoever uses this has agreed on the order of
  // collectives before. What fails later is thrown by the next call, or by wait().
  virtual void enqueue(const Request& request, Event after, Event done, Deadline deadline) = 0;

  // Returns when an event has happened; TransportError when NCCL or a peer failed, TimeoutError at the
  // deadline.
  virtual void wait(Event event, Deadline deadline) = 0;
};

struct NcclOptions {
  int rank = 0;
  int size = 1;
  int device = 0;  // this rank's GPU, as CUDA counts them; two ranks cannot share one
  // Where buffers lie. On the host (pinned) programs can touch them, and all bytes cross the bus.
  enum class Memory : std::uint8_t { device, host };
  Memory memory = Memory::device;
  // Gives every rank the text of rank 0: how ranks get to know NCCL's id of the job. See exchange_over().
  std::function<std::string(const std::string& mine)> exchange;
  Deadline deadline = Deadline::after(std::chrono::seconds(120));  // for all ranks to come
};

// The exchange over a group that the ranks have already, on any backend with memory of the host.
std::function<std::string(const std::string& mine)> exchange_over(const Group& group);

// "" where NCCL can be had; else what is missing. Says nothing of GPUs.
std::string nccl_missing();

// Collective. ConfigError where NCCL or the GPU is missing; TimeoutError where ranks did not come;
// TransportError for what NCCL refuses. An average is NCCL's: contributions are divided before they are
// added. NCCL does not tell peers of an abort: they learn of it by a broken connection, or at their deadline.
std::unique_ptr<DeviceBackend> make_nccl(const NcclOptions& options);

}  // namespace dear::collective
