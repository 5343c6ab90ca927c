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

// By time and not by looks: one over TCP takes twenty times as long as one over shared memory.
void Backoff::pause(Deadline deadline) {
  const SteadyTime now = SteadyClock::now();
  if (begin_ == SteadyTime{}) {
    begin_ = now;
  }
  const auto waited = now - begin_;
  if (waited < kSpin && processors_ == Processors::own) {
    return;
  }
  if (waited < kYield) {
    sched_yield();
    return;
  }
  // The kernel rounds a thread's sleeps up by its slack, 50 us unless said otherwise.
  if (slack_ < 0) {
    constexpr unsigned long kSlackNanoseconds = 1000;
    slack_ = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, kSlackNanoseconds, 0, 0, 0);
  }
  slept_ = true;
  const auto early = std::clamp<std::chrono::nanoseconds>((waited - kYield) / 8, kFirstSleep, kShortSleep);
  const auto sleep = std::clamp<std::chrono::nanoseconds>(waited / 50, early, kLongestSleep);
  const auto time = std::min<std::chrono::nanoseconds>(sleep, deadline.remaining());
  const timespec left{.tv_sec = 0, .tv_nsec = static_cast<long>(time.count())};
  nanosleep(&left, nullptr);
}

}  // namespace dear::transport
