#pragma once

#include <csignal>
#include <ctime>

namespace dear {

// Keeps all signals from the calling thread while it lives; threads that start meanwhile keep theirs blocked
// for good, since handlers of a program run on its own threads. What comes for this thread alone, SIGPIPE of
// a connection whose other end is gone, is dropped: whoever wrote there is told so by EPIPE. Ends on the
// thread it began on.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
    had_broken_pipe_ = broken_pipe_is_pending();
  }
  ~BlockedSignals() {
    if (!had_broken_pipe_ && broken_pipe_is_pending()) {
      sigset_t broken_pipe;
      sigemptyset(&broken_pipe);
      sigaddset(&broken_pipe, SIGPIPE);
      const timespec at_once{};
      sigtimedwait(&broken_pipe, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  static bool broken_pipe_is_pending() {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
  }

  sigset_t before_{};
  bool had_broken_pipe_ = false;
};

}  // namespace dear
