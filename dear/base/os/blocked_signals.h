#pragma once

#include <csignal>
#include <ctime>

namespace dear::os {

// Blocks all signals on the calling thread while this object lives. A thread that is started meanwhile
// inherits the mask and keeps it, so that a program's signal handlers run on the program's own threads. A
// SIGPIPE that this thread caused is discarded, because the call that caused it returned EPIPE. Construct and
// destroy it on the same thread.
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

}  // namespace dear::os
