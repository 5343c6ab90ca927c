#include "dear/base/launch/held_signals.h"

#include <cerrno>
#include <sys/signalfd.h>
#include <unistd.h>

#include "dear/base/vocabulary/error.h"

namespace dear::launch {

HeldSignals::HeldSignals() {
  ::sigemptyset(&held_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    ::sigaddset(&held_, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &held_, &before_);
  file_ = os::FileDescriptor(::signalfd(-1, &held_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!file_.is_open()) {
    const int error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    throw TransportError(with_errno("cannot watch for signals (signalfd)", error));
  }
}

HeldSignals::~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> HeldSignals::next() const {
  signalfd_siginfo info{};
  return ::read(file_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)
             ? std::optional<int>(static_cast<int>(info.ssi_signo))
             : std::nullopt;
}

}  // namespace dear::launch
