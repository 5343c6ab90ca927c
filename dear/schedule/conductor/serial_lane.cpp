#include "dear/schedule/conductor/serial_lane.h"

#include <utility>

#include "dear/base/os/start_thread.h"

namespace dear::conductor {

SerialLane::SerialLane(std::function<void()> first)
    : thread_(os::start_thread("of a lane", [this, first = std::move(first)] {
        if (first) first();
        run();
      })) {}

SerialLane::~SerialLane() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SerialLane::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void SerialLane::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace dear::conductor
