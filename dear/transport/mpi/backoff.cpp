#include "dear/transport/mpi/backoff.h"

#include <algorithm>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

namespace dear::transport {

Backoff::~Backoff() {
  if (slack_ >= 0) {
    prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_), 0, 0, 0);
  }
}

void Backoff::pause(Deadline deadline) {
  ++pauses_;
  if (pauses_ <= spins_) {
    return;
  }
  if (pauses_ <= spins_ + kYields) {
    sched_yield();
    return;
  }
  // The kernel rounds a thread's sleeps up by its slack, 50 us unless said otherwise.
  if (slack_ < 0) {
    constexpr unsigned long kSlackNanoseconds = 1000;
    slack_ = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, kSlackNanoseconds, 0, 0, 0);
  }
  const SteadyTime now = SteadyClock::now();
  if (!slept()) {
    since_ = now;
  }
  const auto waited = now - since_;
  const auto early = std::clamp<std::chrono::nanoseconds>(waited / 8, kFirstSleep, kShortSleep);
  const auto sleep = std::clamp<std::chrono::nanoseconds>(waited / 50, early, kLongestSleep);
  const auto time = std::min<std::chrono::nanoseconds>(sleep, deadline.remaining());
  const timespec left{.tv_sec = 0, .tv_nsec = static_cast<long>(time.count())};
  nanosleep(&left, nullptr);
}

void Backoff::restart() {
  pauses_ = 0;
  since_ = {};
}

}  // namespace dear::transport
