#include "dear/train/c10d/process_group.h"

#include <algorithm>
#include <thread>

#include "dear/base/blocked_signals.h"

namespace dear::train {
namespace {

// Deadlines are ours: a wait of the engine ends with the message, or because we interrupt it.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 3650);
constexpr std::chrono::milliseconds kNow{1};  // none at all would mean the engine's default

constexpr std::chrono::microseconds kShortestNap{20};
constexpr std::chrono::microseconds kLongestNap{2'000};

// Only a view.
std::vector<at::Tensor> bytes_at(void* data, std::int64_t bytes) {
  return {at::from_blob(data, {bytes}, at::TensorOptions().dtype(at::kByte))};
}

}  // namespace

Work start_send(const ProcessGroup& group, void* data, std::int64_t bytes, int peer, int tag) {
  std::vector<at::Tensor> tensors = bytes_at(data, bytes);
  const BlockedSignals blocked;
  return group->send(tensors, peer, tag);
}

Work start_receive(const ProcessGroup& group, void* data, std::int64_t bytes, int peer, int tag) {
  std::vector<at::Tensor> tensors = bytes_at(data, bytes);
  const BlockedSignals blocked;  // it says that it is ready, and so writes
  return group->recv(tensors, peer, tag);
}

bool Waiter::wait(const Work& work, const std::atomic<bool>& interrupted) const {
  if (sleeps_) return work->wait(kForever);
  for (auto nap = kShortestNap; !work->isCompleted(); nap = std::min(2 * nap, kLongestNap)) {
    if (interrupted.load(std::memory_order_acquire)) return false;
    std::this_thread::sleep_for(nap);
  }
  return work->wait();
}

void Waiter::interrupt(const Work& work) const noexcept {
  if (!sleeps_) return;
  try {
    work->abort();
  } catch (const std::exception&) {  // it ended meanwhile
  }
}

bool Waiter::must_be_complete(const Work& work) const {
  if (!sleeps_) return work->isCompleted() && work->wait();
  return work->wait(kNow);
}

void Waiter::abandon(Work work) const noexcept {
  if (!sleeps_) static_cast<void>(work.release());
}

}  // namespace dear::train
