#include "dear/train/c10d/process_group.h"

#include <algorithm>
#include <thread>

namespace dear::train {
namespace {

// Deadlines are ours: a wait of the engine ends with the message, or because we interrupt it.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 3650);
constexpr std::chrono::milliseconds kNow{1};  // none at all would mean the engine's default

constexpr std::chrono::microseconds kShortestNap{20};
constexpr std::chrono::microseconds kLongestNap{2'000};

}  // namespace

at::Tensor bytes_at(void* data, std::int64_t bytes) {
  return at::from_blob(data, {bytes}, at::TensorOptions().dtype(at::kByte));
}

bool Watcher::wait(const Work& work, const std::atomic<bool>& interrupted) const {
  if (sleeps_) return work->wait(kForever);
  for (auto nap = kShortestNap; !work->isCompleted(); nap = std::min(2 * nap, kLongestNap)) {
    if (interrupted.load(std::memory_order_acquire)) return false;
    std::this_thread::sleep_for(nap);
  }
  return work->wait();
}

void Watcher::interrupt(const Work& work) const noexcept {
  if (!sleeps_) return;
  try {
    work->abort();
  } catch (const std::exception&) {  // it ended meanwhile
  }
}

bool Watcher::wait_until(const Work& work, Deadline deadline) const noexcept {
  try {
    if (sleeps_) {
      return work->wait(
          std::max(kNow, std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining())));
    }
    for (auto nap = kShortestNap; !work->isCompleted(); nap = std::min(2 * nap, kLongestNap)) {
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(nap);
    }
    return work->wait();
  } catch (const std::exception&) {
    return false;
  }
}

bool Watcher::must_be_complete(const Work& work) const {
  if (!sleeps_) return work->isCompleted() && work->wait();
  return work->wait(kNow);
}

void Watcher::abandon(Work work) const noexcept {
  if (!sleeps_) static_cast<void>(work.release());
}

}  // namespace dear::train
