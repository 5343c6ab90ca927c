#include "dear/tools/replay/real_time.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <sys/prctl.h>
#include <utility>

#include "dear/base/vocabulary/deadline.h"

namespace dear {
namespace {

SteadyTime time_point(double seconds) {
  return SteadyTime(
      std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds)));
}

}  // namespace

// The kernel lets a thread sleep longer by up to its timer slack, 50 us by default.
RealTime::RealTime() : slack_(static_cast<unsigned long>(std::max(0, prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)))) {
  prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
}

RealTime::~RealTime() { prctl(PR_SET_TIMERSLACK, slack_, 0, 0, 0); }

void RealTime::begin() { now_ = seconds_of(SteadyClock::now()); }

void RealTime::end_at(Instance which, double seconds) { due_.push({which, seconds}); }

void RealTime::expect_end() {
  const std::lock_guard lock(mutex_);
  ++expected_;
}

void RealTime::expect_no_end() {
  const std::lock_guard lock(mutex_);
  --expected_;
}

void RealTime::ended(const conductor::StepEnd& end) {
  const std::lock_guard lock(mutex_);
  if (!end.error) told_.push_back({end.span.which, end.span.end_seconds});
  if (!failure_) failure_ = end.error;
  --expected_;
  news_.notify_all();
}

void RealTime::await_ends() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return expected_ == 0; });
}

conductor::Completion RealTime::give(const conductor::Completion& completion) {
  now_ = std::max(now_, completion.at_seconds);
  return {completion.which, now_};
}

conductor::Completion RealTime::next() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (failure_) std::rethrow_exception(failure_);
    const bool told = !told_.empty();
    if (!due_.empty() && (!told || due_.top().at_seconds <= told_.front().at_seconds)) {
      const conductor::Completion first = due_.top();
      if (told || SteadyClock::now() >= time_point(first.at_seconds)) {
        due_.pop();
        return give(first);
      }
      news_.wait_until(lock, time_point(first.at_seconds));
    } else if (told) {
      const conductor::Completion first = told_.front();
      told_.pop_front();
      return give(first);
    } else if (expected_ == 0) {
      throw std::logic_error("a replay waits, and nothing is under way");
    } else {
      news_.wait(lock);
    }
  }
}

}  // namespace dear
