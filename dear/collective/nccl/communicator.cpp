#include "dear/collective/nccl/communicator.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "dear/base/error.h"

namespace dear::collective {
namespace {

// Small collectives take some ten microseconds: it looks as long without sleeping.
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::microseconds kLongestNap{500};
constexpr std::chrono::duration<double> kFarewell = std::chrono::seconds(5);

ncclUniqueId agree_on_id(const NcclOptions& options) {
  ncclUniqueId id{};
  std::string text;
  if (options.rank == 0) {
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) {
      throw_nccl(0, "name the job for NCCL", result, nullptr);
    }
    text.assign(id.internal, sizeof id.internal);
  }
  if (options.size > 1) text = options.exchange(text);
  if (text.size() != sizeof id.internal) {
    throw ConfigError(
        fmt::format("rank {} got {} bytes for NCCL's id, which has {}: NcclOptions::exchange must "
                    "give every rank the text of rank 0",
                    options.rank, text.size(), sizeof id.internal));
  }
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  return id;
}

}  // namespace

Communicator::Communicator(const NcclOptions& options) : rank_(options.rank), device_(options.device) {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || options.device < 0 || options.device >= devices) {
    static_cast<void>(cudaGetLastError());
    throw ConfigError(
        fmt::format("rank {} cannot use CUDA device {}: {} (see nvidia-smi and CUDA_VISIBLE_DEVICES, "
                    "or choose a backend for the CPU)",
                    rank_, options.device,
                    found != cudaSuccess ? cudaGetErrorString(found)
                                         : fmt::format("there are {} of them", devices).c_str()));
  }
  try {
    start(options);
  } catch (...) {
    end();
    throw;
  }
}

void Communicator::start(const NcclOptions& options) {
  check_cuda(rank_, "use its GPU", cudaSetDevice(device_));
  check_cuda(rank_, "make a stream", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  const ncclUniqueId id = agree_on_id(options);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  settle("meet the other ranks over NCCL",
         ncclCommInitRankConfig(&communicator_, options.size, id, options.rank, &config), options.deadline);
}

Communicator::~Communicator() {
  if (communicator_ != nullptr && !aborted_) {
    try {
      settle("leave", ncclCommFinalize(communicator_), Deadline::after(kFarewell));
      static_cast<void>(ncclCommDestroy(communicator_));
      communicator_ = nullptr;
    } catch (const std::exception&) {  // peers that are gone cannot be waited for
    }
  }
  end();
}

void Communicator::end() noexcept {
  static_cast<void>(cudaSetDevice(device_));
  if (communicator_ != nullptr) static_cast<void>(ncclCommAbort(communicator_));
  communicator_ = nullptr;
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  stream_ = nullptr;
}

void Communicator::throw_if_aborted() {
  if (!aborted_) return;
  const std::lock_guard lock(mutex_);
  throw TransportError(reason_);
}

void Communicator::abort(const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = reason;
  aborted_ = true;
}

template <typename Done>
void Communicator::poll(const std::string& what, Deadline deadline, const Done& done) {
  const SteadyTime spin_until = SteadyClock::now() + kSpin;
  for (auto nap = std::chrono::microseconds(10); !done(); nap = std::min(2 * nap, kLongestNap)) {
    throw_if_aborted();
    ncclResult_t state = ncclSuccess;
    if (communicator_ != nullptr) static_cast<void>(ncclCommGetAsyncError(communicator_, &state));
    if (state != ncclSuccess && state != ncclInProgress) throw_nccl(rank_, what, state, communicator_);
    if (deadline.expired()) {
      throw TimeoutError(fmt::format(
          "rank {} gave up: it could not {} in time (a rank did not come, or is stopped)", rank_, what));
    }
    if (SteadyClock::now() > spin_until) std::this_thread::sleep_for(nap);
  }
}

void Communicator::settle(const std::string& what, ncclResult_t result, Deadline deadline) {
  if (result == ncclInProgress) {
    poll(what, deadline, [&] {
      return ncclCommGetAsyncError(communicator_, &result) == ncclSuccess && result != ncclInProgress;
    });
  }
  if (result != ncclSuccess) throw_nccl(rank_, what, result, communicator_);
}

void Communicator::queue(const std::string& what, const Calls& calls, Deadline deadline) {
  throw_if_aborted();
  check_cuda(rank_, "use its GPU", cudaSetDevice(device_));
  const auto accepted = [](ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; };
  if (const ncclResult_t result = ncclGroupStart(); !accepted(result)) {
    throw_nccl(rank_, what, result, communicator_);
  }
  const ncclResult_t called = calls(communicator_, stream_);
  const ncclResult_t ended = ncclGroupEnd();
  if (!accepted(called)) throw_nccl(rank_, what, called, communicator_);
  settle(what, ended, deadline);
}

void Communicator::wait_on_device(cudaEvent_t event) {
  check_cuda(rank_, "wait for an event", cudaStreamWaitEvent(stream_, event, 0));
}
void Communicator::record(cudaEvent_t event) {
  check_cuda(rank_, "record an event", cudaEventRecord(event, stream_));
}

void Communicator::wait(const std::string& what, cudaEvent_t event, Deadline deadline) {
  throw_if_aborted();
  poll(what, deadline, [&] {
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaErrorNotReady) return false;
    check_cuda(rank_, what, state);
    return true;
  });
}

}  // namespace dear::collective
