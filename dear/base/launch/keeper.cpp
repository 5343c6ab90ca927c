#include "dear/base/launch/keeper.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "dear/base/launch/launcher.h"
#include "dear/base/launch/pipe.h"
#include "dear/base/os/blocked_signals.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {
namespace {

// Runs in the child of a process that may have threads, so it calls only what is safe in a signal handler.
[[noreturn]] void keep(int pipe) {
  ::setsid();  // out of reach of the terminal's signals
  ::prctl(PR_SET_NAME, "dear-keeper");
  constexpr int kPipe = 3;
  ::dup2(pipe, kPipe);
  ::close_range(kPipe + 1, ~0U, 0);
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < kPipe; ++fd) {
    ::dup2(null, fd);
  }
  std::array<pid_t, kMostRanks> groups{};
  std::size_t count = 0;
  pid_t group = 0;
  // A write of one number to a pipe is atomic, so reads come whole too.
  for (ssize_t got = 0; (got = ::read(kPipe, &group, sizeof group)) != 0;) {
    if (got == static_cast<ssize_t>(sizeof group) && count < groups.size()) {
      groups[count++] = group;
    } else if (got < 0 && errno != EINTR) {
      break;
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    ::kill(-groups[i], SIGKILL);
  }
  ::_exit(0);
}

}  // namespace

Keeper::Keeper() {
  Pipe pipe = make_pipe();
  // The child blocks every signal, so that none meant for the launcher's process group ends it.
  int error = 0;
  {
    const os::BlockedSignals blocked;
    pid_ = ::fork();
    error = errno;
    if (pid_ == 0) keep(pipe.read.get());
  }
  if (pid_ < 0) {
    throw TransportError(with_errno("cannot start the process that watches over the ranks", error) +
                         "; end other processes, or allow more (ulimit -u)");
  }
  pipe_ = std::move(pipe.write);
}

Keeper::~Keeper() {
  pipe_.close();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Keeper::announce_this_process() const noexcept {
  const pid_t self = ::getpid();
  static_cast<void>(!::write(pipe_.get(), &self, sizeof self));
}

}  // namespace dear::launch
