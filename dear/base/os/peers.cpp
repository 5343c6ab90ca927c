#include "dear/base/os/peers.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sys/syscall.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"

namespace dear::os {
namespace {

// The number by which our own /proc knows the process, also when it was opened in another pid namespace.
pid_t read_pid(int pidfd) {
  std::ifstream info(fmt::format("/proc/self/fdinfo/{}", pidfd));
  std::string word;
  while (info >> word) {
    if (word == "Pid:") {
      pid_t pid = 0;
      info >> pid;
      return pid > 0 ? pid : 0;
    }
  }
  return 0;
}

}  // namespace

Peers::Peers(std::vector<FileDescriptor> processes) {
  for (FileDescriptor& file : processes) {
    const pid_t pid = read_pid(file.get());
    processes_.push_back({std::move(file), pid});
  }
}

pid_t Peers::pid(int rank) const {
  return processes_.empty() ? 0 : processes_[static_cast<std::size_t>(rank)].pid;
}

std::string Peers::name(int rank) const {
  const int called = names_.empty() ? rank : names_[static_cast<std::size_t>(rank)];
  return pid(rank) != 0 ? fmt::format("rank {} (pid {})", called, pid(rank)) : fmt::format("rank {}", called);
}

bool Peers::ended(int rank) const {
  if (processes_.empty()) {
    return false;
  }
  pollfd entry{.fd = processes_[static_cast<std::size_t>(rank)].file.get(), .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

bool Peers::stopped(int rank) const {
  if (pid(rank) == 0 || ended(rank)) {
    return false;
  }
  // The file says "PID (NAME) STATE ...". The name may hold anything, so the state is looked for behind its
  // last parenthesis.
  std::ifstream file(fmt::format("/proc/{}/stat", pid(rank)));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 2 >= text.size()) {
    return false;
  }
  const char state = text[end_of_name + 2];
  return state == 'T' || state == 't';
}

std::string Peers::is_gone(int rank, bool left, const std::string& what) const {
  return left ? fmt::format("{} left the group while others {}: every rank must issue the same collectives",
                            name(rank), what)
              : fmt::format("{} died while others {}: its own output says why", name(rank), what);
}

std::string Peers::are_late(const std::vector<int>& ranks, double waited_seconds,
                            const std::string& what) const {
  std::vector<std::string> names;
  std::vector<std::string> stopped_ones;
  for (const int rank : ranks) {
    names.push_back(name(rank));
    if (stopped(rank)) {
      stopped_ones.push_back(fmt::format("kill -CONT {}", pid(rank)));
    }
  }
  const std::string advice =
      stopped_ones.empty()
          ? "stuck or slower than that (raise the timeout if it is only slow)"
          : fmt::format("stopped by a signal (continue with: {})", fmt::join(stopped_ones, "; "));
  return fmt::format("{} did not come within {} while others {}: {}",
                     names.empty() ? "a rank" : fmt::format("{}", fmt::join(names, ", ")),
                     format_seconds(waited_seconds), what, advice);
}

std::string list_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

FileDescriptor watch_process(pid_t pid) {
  FileDescriptor file(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!file.is_open()) {
    throw TransportError(with_errno(
        fmt::format(
            "cannot watch process {} for its end (Linux 5.3 or later and one pid namespace for all ranks are "
            "needed)",
            pid),
        errno));
  }
  return file;
}

}  // namespace dear::os
