#include "dear/base/launch/rank_process.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <fmt/format.h>

#include "dear/base/launch/cores.h"
#include "dear/base/launch/pipe.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));  // exec does not write to them
  }
  pointers.push_back(nullptr);
  return pointers;
}

// Holds what the child needs, made before the fork: after the fork it calls only what is safe in a signal
// handler.
struct Start {
  const Keeper& keeper;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  const std::vector<int>& cores;
  sigset_t signal_mask;
  rlimit open_files;
  pid_t launcher;
  std::array<int, 3> standard;  // files for input, output and error; -1 to keep ours
  int failure;                  // takes errno when the program cannot be run; closes when it runs
};

[[noreturn]] void become_rank(const Start& start) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.launcher) {  // it died before the line above
    ::_exit(1);
  }
  start.keeper.announce_this_process();
  for (int fd = 0; fd < 3; ++fd) {
    if (start.standard[static_cast<std::size_t>(fd)] >= 0) {
      ::dup2(start.standard[static_cast<std::size_t>(fd)], fd);
    }
  }
  if (!start.cores.empty()) {
    bind_to(start.cores);  // cores may go offline any time: a rank that is not bound is slower, not wrong
  }
  ::setrlimit(RLIMIT_NOFILE, &start.open_files);
  ::sigprocmask(SIG_SETMASK, &start.signal_mask, nullptr);
  ::execvpe(start.arguments[0], start.arguments.data(), start.environment.data());
  const int error = errno;
  static_cast<void>(!::write(start.failure, &error, sizeof error));
  ::_exit(1);
}

// The errno of the failed start; 0 when the program runs.
int read_failure(const os::FileDescriptor& pipe) {
  int error = 0;
  while (::read(pipe.get(), &error, sizeof error) < 0 && errno == EINTR) {
  }
  return error;
}

constexpr auto kLastWait = std::chrono::seconds(5);

// Calls pidfd_open by its number: glibc 2.36 declares it without C linkage.
int open_pidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

rlimit limit_of_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

std::string Ending::to_string() const {
  if (with_host) return "is lost with its host";
  if (signal == 0) {
    return fmt::format("exited with code {}", code);
  }
  const char* const description = ::sigdescr_np(signal);
  return fmt::format("was killed by signal {} ({})", signal, description ? description : "real-time signal");
}

RankProcess::RankProcess(const RankProgram& program, const Keeper& keeper) {
  Pipe failure = make_pipe();
  Pipe out;
  Pipe err;
  os::FileDescriptor null;
  Start start{.keeper = keeper,
              .arguments = pointers_to(program.command),
              .environment = pointers_to(program.environment),
              .cores = program.cores,
              .signal_mask = program.signal_mask,
              .open_files = program.open_files,
              .launcher = ::getpid(),
              .standard = {-1, -1, -1},
              .failure = failure.write.get()};
  if (!program.reads_input) {
    null = os::FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    start.standard[0] = null.get();
  }
  if (program.piped_output) {
    out = make_pipe();
    set_nonblocking(out.read);
    start.standard[1] = out.write.get();
  }
  if (program.piped_error) {
    err = make_pipe();
    set_nonblocking(err.read);
    start.standard[2] = err.write.get();
  }
  pid_ = ::fork();
  if (pid_ == 0) {
    become_rank(start);
  }
  if (pid_ < 0) {
    throw TransportError(with_errno("cannot start a process for a rank", errno) +
                         "; start fewer ranks, or allow more processes (ulimit -u)");
  }
  failure.write.close();
  const int error = read_failure(failure.read);
  pidfd_ = os::FileDescriptor(open_pidfd(pid_));
  if (error != 0 || !pidfd_.is_open()) {
    const int refused = errno;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    if (error == 0) {
      throw TransportError(with_errno("cannot watch the process of a rank (pidfd_open)", refused));
    }
    throw ConfigError(with_errno(fmt::format("cannot run '{}'", program.command.front()), error) +
                      "; give the path of a program, or its name when it lies in PATH");
  }
  output = std::move(out.read);
  this->error = std::move(err.read);
}

// A process that the kernel holds (in uninterruptible sleep) does not end: it is left to the system.
RankProcess::~RankProcess() {
  send(SIGKILL);
  pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  poll_until({&ended, 1}, Deadline::after(kLastWait));
  while (::waitpid(pid_, nullptr, WNOHANG) < 0 && errno == EINTR) {
  }
}

Ending RankProcess::ending() const {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  return info.si_code == CLD_EXITED ? Ending{.code = info.si_status, .signal = 0}
                                    : Ending{.code = 0, .signal = info.si_status};
}

void RankProcess::send(int signal) const {
  ::kill(-pid_, signal);
  ::kill(-pid_, SIGCONT);
}

}  // namespace dear::launch
