#include "dear/measure/start_barrier.h"

#include <atomic>
#include <cerrno>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "dear/base/error.h"

namespace dear::measure {

struct StartBarrier::State {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> generation;
};

FileDescriptor StartBarrier::make_memory() {
  FileDescriptor memory(::memfd_create("dear-bench", MFD_CLOEXEC));
  if (!memory.is_open() || ::ftruncate(memory.get(), sizeof(State)) != 0) {
    throw TransportError(with_errno("cannot make shared memory for the ranks of a benchmark", errno));
  }
  return memory;
}

StartBarrier::StartBarrier(FileDescriptor memory, int ranks) : ranks_(static_cast<std::uint32_t>(ranks)) {
  void* const mapped = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) {
    throw TransportError(with_errno("cannot map the shared memory of a benchmark", errno));
  }
  state_ = static_cast<State*>(mapped);  // zeroed, as a memfd is
}

StartBarrier::~StartBarrier() { ::munmap(state_, sizeof(State)); }

void StartBarrier::wait(Deadline deadline) {
  const std::uint32_t before = state_->generation.load();
  if (state_->arrived.fetch_add(1) + 1 == ranks_) {
    state_->arrived.store(0);
    state_->generation.store(before + 1);
    ::syscall(SYS_futex, &state_->generation, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return;
  }
  // Where every rank has a core, the last comes soon, and all are to start as one.
  constexpr int kSpins = 2000;
  for (int i = 0; i < kSpins && state_->generation.load() == before; ++i) {
    __builtin_ia32_pause();
  }
  while (state_->generation.load() == before) {
    const auto left = deadline.remaining();
    if (left.count() == 0) {
      throw TimeoutError("not all ranks came to the start of a repetition in time; give a longer --timeout");
    }
    const timespec timeout{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
    ::syscall(SYS_futex, &state_->generation, FUTEX_WAIT, before, &timeout, nullptr, 0);
  }
}

}  // namespace dear::measure
