#include "dear/comm/mpi/channels/backoff.h"

#include <algorithm>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

namespace dear::channels {

Backoff::~Backoff() {
  if (slack_ >= 0) {
    prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_), 0, 0, 0);
  }
}

void UsualWait::learn(std::chrono::nanoseconds waited) {
  constexpr std::chrono::nanoseconds kSurprise = Backoff::kYield;
  if (waited < time_) {
    time_ -= (time_ - waited) / 4;
  } else {
    time_ += std::min(waited - time_, time_ + kSurprise) / 16;
  }
}

// By time and not by looks: one over TCP takes twenty times as long as one over shared memory.
void Backoff::pause(Deadline deadline) {
  const SteadyTime now = SteadyClock::now();
  if (begin_ == SteadyTime{}) {
    begin_ = now;
  }
  const std::chrono::nanoseconds waited = now - begin_;
  if (usual_ >= kWorthASleep && waited < 2 * usual_) {
    const auto most = std::min<std::chrono::nanoseconds>(usual_ * 3 / 4 - waited, kLongestSleep);
    sleep(std::max<std::chrono::nanoseconds>(
              most, std::clamp<std::chrono::nanoseconds>(usual_ / 16, kFirstSleep, kShortSleep)),
          deadline);
    return;
  }
  if (waited < kSpin && processors_ == Processors::own) {
    return;
  }
  if (waited < kYield) {
    sched_yield();
    return;
  }
  const auto early = std::clamp<std::chrono::nanoseconds>((waited - kYield) / 8, kFirstSleep, kShortSleep);
  sleep(std::clamp<std::chrono::nanoseconds>(waited / 50, early, kLongestSleep), deadline);
}

// The kernel rounds a thread's sleeps up by its slack, 50 us unless said otherwise.
void Backoff::sleep(std::chrono::nanoseconds time, Deadline deadline) {
  if (slack_ < 0) {
    constexpr unsigned long kSlackNanoseconds = 1000;
    slack_ = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, kSlackNanoseconds, 0, 0, 0);
  }
  slept_ = true;
  const auto shorter = std::min<std::chrono::nanoseconds>(time, deadline.remaining());
  const timespec left{.tv_sec = 0, .tv_nsec = static_cast<long>(shorter.count())};
  nanosleep(&left, nullptr);
}

}  // namespace dear::channels
