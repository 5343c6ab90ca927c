#include "dear/measure/start_barrier.h"

#include <atomic>
#include <utility>

#include "dear/base/error.h"
#include "dear/host/futex.h"

namespace dear::measure {

// All zeros at first.
struct StartBarrier::State {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> generation;
};

std::shared_ptr<host::Segment> StartBarrier::make_memory() {
  return host::Segment::create(sizeof(State), "the ranks of a benchmark");
}

StartBarrier::StartBarrier(FileDescriptor memory, int ranks)
    : memory_(host::Segment::map(std::move(memory), sizeof(State))),
      state_(*reinterpret_cast<State*>(memory_->data())),
      ranks_(static_cast<std::uint32_t>(ranks)) {}

void StartBarrier::wait(Deadline deadline) {
  const std::uint32_t before = state_.generation.load();
  if (state_.arrived.fetch_add(1) + 1 == ranks_) {
    state_.arrived.store(0);
    state_.generation.store(before + 1);
    host::wake_all(state_.generation);
    return;
  }
  // Where every rank has a core, the last comes soon, and all are to start as one.
  constexpr int kSpins = 2000;
  for (int i = 0; i < kSpins && state_.generation.load() == before; ++i) host::relax();
  while (state_.generation.load() == before) {
    if (deadline.expired()) {
      throw TimeoutError("not all ranks came to the start of a repetition in time; give a longer --timeout");
    }
    host::sleep_on(state_.generation, before, deadline.remaining());
  }
}

}  // namespace dear::measure
