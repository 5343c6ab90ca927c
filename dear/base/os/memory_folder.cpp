#include "dear/base/os/memory_folder.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/os/remove_tree.h"
#include "dear/base/vocabulary/error.h"

namespace dear::os {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMemory = "/dev/shm";
constexpr const char* kStem = "dear-memory-";
constexpr const char* kMaking = "dear-making-";  // without a lock yet

// Takes the lock on a folder of this user; none where another process has it.
FileDescriptor locked(const std::string& path) {
  FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found{};
  if (folder.is_open() && (::fstat(folder.get(), &found) != 0 || found.st_uid != ::geteuid() ||
                           ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0))
    folder.close();
  return folder;
}

void remove_abandoned() {
  std::error_code error;
  for (fs::directory_iterator entry(kMemory, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kStem)) continue;
    if (const FileDescriptor lock = locked(entry->path().string()); lock.is_open())
      static_cast<void>(remove_tree(entry->path().string()));
  }
}

}  // namespace

MemoryFolder::MemoryFolder() {
  remove_abandoned();
  std::string making = fmt::format("{}/{}XXXXXX", kMemory, kMaking);
  if (::mkdtemp(making.data()) == nullptr)
    throw TransportError(with_errno(fmt::format("cannot make a folder in {}", kMemory), errno) +
                         " (a container may lack it: mount a tmpfs there)");
  lock_ = locked(making);
  path_ = fmt::format("{}/{}{}", kMemory, kStem, making.substr(making.size() - 6));
  if (::rename(making.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    static_cast<void>(remove_tree(making));
    throw TransportError(with_errno(fmt::format("cannot make the folder '{}'", path_), error) +
                         " (start the job again)");
  }
}

MemoryFolder::~MemoryFolder() { static_cast<void>(remove_tree(path_)); }

}  // namespace dear::os
