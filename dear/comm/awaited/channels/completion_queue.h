#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/channels/channels.h"

namespace dear::channels {

// What the threads that wait for a messaging library tell the thread that uses the channels.
class CompletionQueue {
 public:
  void complete(Transfer& transfer) {
    const std::lock_guard lock(mutex_);
    completed_.push_back(&transfer);
    changed_.notify_one();
  }
  // The first one counts.
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(error);
    changed_.notify_all();
  }
  [[nodiscard]] std::exception_ptr failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // Marks as done what is complete; whether anything was.
  bool collect() {
    const std::lock_guard lock(mutex_);
    return collect_locked();
  }
  // Waits for something that is complete, a failure, or the deadline, and then does what collect() does.
  bool wait(Deadline deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.at(), [this] { return failure_ || !completed_.empty(); });
    return collect_locked();
  }

 private:
  bool collect_locked() {
    for (Transfer* transfer : completed_) transfer->done = true;
    const bool any = !completed_.empty();
    completed_.clear();
    return any;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Transfer*> completed_;
  std::exception_ptr failure_;
};

}  // namespace dear::channels
