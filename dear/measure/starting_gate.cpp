#include "dear/measure/starting_gate.h"

#include <atomic>
#include <cerrno>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "dear/base/error.h"

namespace dear::measure {

struct StartingGate::Words {
  std::atomic<std::uint32_t> waiting;
  std::atomic<std::uint32_t> openings;
};

FileDescriptor StartingGate::make_memory() {
  FileDescriptor memory(::memfd_create("dear-bench", MFD_CLOEXEC));
  if (!memory.is_open() || ::ftruncate(memory.get(), sizeof(Words)) != 0) {
    throw TransportError(with_errno("cannot make shared memory for the ranks of a bench", errno));
  }
  return memory;
}

StartingGate::StartingGate(FileDescriptor memory, int ranks) : ranks_(static_cast<std::uint32_t>(ranks)) {
  void* const mapped = ::mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) {
    throw TransportError(with_errno("cannot map the shared memory of a bench", errno));
  }
  words_ = static_cast<Words*>(mapped);  // zeroed, as a memfd is
}

StartingGate::~StartingGate() { ::munmap(words_, sizeof(Words)); }

void StartingGate::wait(Deadline deadline) {
  const std::uint32_t before = words_->openings.load();
  if (words_->waiting.fetch_add(1) + 1 == ranks_) {
    words_->waiting.store(0);
    words_->openings.store(before + 1);
    ::syscall(SYS_futex, &words_->openings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return;
  }
  // Where every rank has a core, the last comes soon, and all are to start as one.
  constexpr int kSpins = 2000;
  for (int i = 0; i < kSpins && words_->openings.load() == before; ++i) {
    __builtin_ia32_pause();
  }
  while (words_->openings.load() == before) {
    const auto left = deadline.remaining();
    if (left.count() == 0) {
      throw TimeoutError("not all ranks came to the start of a repetition");
    }
    const timespec timeout{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
    ::syscall(SYS_futex, &words_->openings, FUTEX_WAIT, before, &timeout, nullptr, 0);
  }
}

}  // namespace dear::measure
