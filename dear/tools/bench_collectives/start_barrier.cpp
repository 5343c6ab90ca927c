#include "dear/tools/bench_collectives/start_barrier.h"

#include <atomic>
#include <utility>

#include "dear/base/os/futex.h"
#include "dear/base/vocabulary/error.h"

namespace dear::bench_collectives {

// All zeros at first.
struct StartBarrier::State {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> generation;
};

std::shared_ptr<os::Segment> StartBarrier::make_memory() {
  return os::Segment::create(sizeof(State), "the ranks of a benchmark");
}

StartBarrier::StartBarrier(os::FileDescriptor memory, int ranks)
    : memory_(os::Segment::map(std::move(memory), sizeof(State))),
      state_(*reinterpret_cast<State*>(memory_->data())),
      ranks_(static_cast<std::uint32_t>(ranks)) {}

void StartBarrier::wait(Deadline deadline) {
  const std::uint32_t before = state_.generation.load();
  if (state_.arrived.fetch_add(1) + 1 == ranks_) {
    state_.arrived.store(0);
    state_.generation.store(before + 1);
    os::wake_all(state_.generation);
    return;
  }
  // Where every rank has a core, the last comes soon, and all are to start as one.
  constexpr int kSpins = 2000;
  for (int i = 0; i < kSpins && state_.generation.load() == before; ++i) os::relax();
  while (state_.generation.load() == before) {
    if (deadline.expired()) {
      throw TimeoutError("not all ranks came to the start of a repetition in time; give a longer --timeout");
    }
    os::sleep_on(state_.generation, before, deadline.remaining());
  }
}

}  // namespace dear::bench_collectives
