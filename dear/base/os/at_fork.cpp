#include "dear/base/os/at_fork.h"

#include <algorithm>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace dear::os {
namespace {

struct Entry {
  int fd;
  unsigned long device;
  unsigned long inode;
  bool operator==(const Entry&) const = default;
};

struct Registry {
  std::mutex mutex;
  std::vector<Entry> entries;
};

// Never destroyed: a process may fork while it ends.
Registry& registry() {
  static auto* const kRegistry = new Registry;
  return *kRegistry;
}

// Between fork() and exec() only what is safe in a signal handler is called.
void replace_in_child() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const Entry& entry : registry().entries) {
    struct stat now{};
    if (::fstat(entry.fd, &now) != 0 || now.st_dev != entry.device || now.st_ino != entry.inode) continue;
    if (::dup3(null, entry.fd, O_CLOEXEC) < 0) ::close(entry.fd);
  }
  if (null >= 0) ::close(null);
  registry().entries.clear();
  registry().mutex.unlock();
}

void watch_forks() {
  static const int kWatched = [] {
    registry();
    return ::pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                            replace_in_child);
  }();
  static_cast<void>(kWatched);
}

}  // namespace

NotInChildren::NotInChildren(int fd) {
  struct stat now{};
  if (fd < 0 || ::fstat(fd, &now) != 0) return;
  watch_forks();
  const std::lock_guard lock(registry().mutex);
  registry().entries.push_back({.fd = fd, .device = now.st_dev, .inode = now.st_ino});
  fd_ = fd;
  device_ = now.st_dev;
  inode_ = now.st_ino;
}

NotInChildren::NotInChildren(NotInChildren&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), device_(other.device_), inode_(other.inode_) {}

NotInChildren& NotInChildren::operator=(NotInChildren&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return *this;
}

NotInChildren::~NotInChildren() {
  if (fd_ < 0) return;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto at = std::find(all.entries.begin(), all.entries.end(), Entry{fd_, device_, inode_});
  if (at != all.entries.end()) all.entries.erase(at);
}

}  // namespace dear::os
