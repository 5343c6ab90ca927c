#include "dear/base/launch/strays.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/syscall.h>
#include <unistd.h>

#include "dear/base/os/file_descriptor.h"

namespace dear::launch {
namespace {

bool is_of_job(const std::string& pid, const std::string& variable) {
  std::ifstream file("/proc/" + pid + "/environ", std::ios::binary);
  const std::string all = '\0' + std::string((std::istreambuf_iterator<char>(file)), {});
  return all.find(variable) != std::string::npos;
}

}  // namespace

// The descriptor of the process is opened before its environment is read: a number that the system gives
// to another process meanwhile harms nobody.
int kill_strays(const std::string& variable) {
  const std::string entry_of_job = std::string(1, '\0') + variable + '\0';
  int killed = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      continue;
    const pid_t pid = static_cast<pid_t>(std::strtol(name.c_str(), nullptr, 10));
    if (pid == ::getpid()) continue;
    const os::FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!process.is_open() || !is_of_job(name, entry_of_job)) continue;
    if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0) ++killed;
  }
  return killed;
}

}  // namespace dear::launch
