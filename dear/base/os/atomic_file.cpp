#include "dear/base/os/atomic_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "dear/base/os/bytes_written.h"
#include "dear/base/os/retried.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::os {
namespace {

std::string_view remedy_for(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return "check that the path is right and that its folder exists";
    case EISDIR:
      return "name a file instead of a folder";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and its folder";
    case EROFS:
      return "choose a path on a file system that can be written to";
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose another file system";
    default:
      return "check the path, or choose another one";
  }
}

[[noreturn]] void fail(const std::string& what, const std::string& path, int error_number) {
  throw ConfigError(with_errno("cannot " + what + " '" + path + "'", error_number) + " (" +
                    std::string(remedy_for(error_number)) + ")");
}

// A signal may interrupt what close() waits for, when the descriptor is closed already.
[[nodiscard]] bool closed(int descriptor) { return ::close(descriptor) == 0 || errno == EINTR; }

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  [[nodiscard]] int get() const { return value_; }
  [[nodiscard]] bool open() const { return value_ >= 0; }
  [[nodiscard]] bool close() { return closed(std::exchange(value_, -1)); }

 private:
  int value_;
};

std::atomic<std::int64_t> written_so_far{0};
constexpr std::size_t kMostAtOnce = std::size_t{16} << 20;  // so that a slow write shows that it moves

[[nodiscard]] bool write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written =
        retried([&] { return ::write(descriptor, content.data(), std::min(content.size(), kMostAtOnce)); });
    if (written < 0) return false;
    written_so_far += written;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// The descriptor of this process that the path is a name for. Opening such a path anew would start at offset
// 0 of the file that standard output was redirected to, and overwrite what was printed before.
std::optional<int> own_descriptor(std::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    const std::string_view digits = path.substr(folder.size());
    int number = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc() && end == digits.data() + digits.size()) return number;
  }
  return std::nullopt;
}

void write_to_own_descriptor(int number, const std::string& path, std::string_view content) {
  if (number == STDOUT_FILENO) std::fflush(stdout);  // what was printed before stays before
  if (!write_all(number, content)) fail("write to", path, errno);
}

// Writing into a pipe that the program names waits for its reader.
void write_in_place(const std::string& path, std::string_view content) {
  Descriptor file(retried([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC); }));
  if (!file.open()) fail("open", path, errno);
  if (!write_all(file.get(), content) || !file.close()) fail("write to", path, errno);
}

constexpr const char* kTemporary = ".dear-";
constexpr const char* kTemporaryEnd = ".tmp";

// Makes the rename itself durable. A file system that cannot do this has still replaced the file, so no
// error.
void sync_folder_of(const std::filesystem::path& target) {
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
  const Descriptor descriptor(
      retried([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (descriptor.open()) retried([&] { return ::fsync(descriptor.get()); });
}

}  // namespace

// A new file beside the target; removed again unless it has taken the target's place. While its process
// lives, it is locked: see remove_abandoned_files().
class AtomicFile::Temporary {
 public:
  // Its name does not contain the target's, which may be as long as a name can be.
  explicit Temporary(const std::filesystem::path& target) {
    static std::atomic<unsigned> counter{0};
    const std::string stem = kTemporary + std::to_string(::getpid()) + "-";
    do {
      if (descriptor_ >= 0) ::close(descriptor_);
      path_ = target.parent_path() / (stem + std::to_string(counter++) + kTemporaryEnd);
      descriptor_ =
          retried([&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
    } while (descriptor_ < 0 ? errno == EEXIST : !keep());
    if (descriptor_ < 0) fail("create a file beside", target.string(), errno);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  [[nodiscard]] int descriptor() const { return descriptor_; }
  // False with errno when the system refuses. Network file systems report a full disk only at close, here of
  // a second descriptor: the first one keeps the lock until the file has its name.
  [[nodiscard]] bool take_place_of(const std::filesystem::path& target) {
    if (retried([&] { return ::fsync(descriptor_); }) != 0) return false;
    if (const int second = ::dup(descriptor_); second >= 0 && !closed(second)) return false;
    if (::rename(path_.c_str(), target.c_str()) != 0) return false;
    path_.clear();
    return true;
  }

 private:
  // Locks it. False where somebody took it for an abandoned one, before it was locked.
  [[nodiscard]] bool keep() const {
    struct stat now{};
    return retried([&] { return ::flock(descriptor_, LOCK_EX); }) != 0 || ::fstat(descriptor_, &now) != 0 ||
           now.st_nlink > 0;
  }

  std::filesystem::path path_;
  int descriptor_ = -1;
};

void write_file_atomically(const std::string& path, std::string_view content) {
  if (const auto number = own_descriptor(path)) return write_to_own_descriptor(*number, path, content);

  struct stat existing{};
  const bool exists = ::stat(path.c_str(), &existing) == 0;
  if (exists && !S_ISREG(existing.st_mode)) return write_in_place(path, content);
  // A rename needs no permission for the file that it replaces: ask for it, as any other way of writing
  // would.
  if (exists && ::access(path.c_str(), W_OK) != 0) fail("write to", path, errno);

  std::error_code no_link;
  const std::filesystem::path resolved =
      exists ? std::filesystem::canonical(path, no_link) : std::filesystem::path(path);
  const std::filesystem::path target = no_link ? std::filesystem::path(path) : resolved;
  AtomicFile::Temporary temporary(target);
  if (exists && ::fchmod(temporary.descriptor(), existing.st_mode & 0777) != 0) fail("write to", path, errno);
  if (!write_all(temporary.descriptor(), content) || !temporary.take_place_of(target)) {
    fail("write to", path, errno);
  }
  sync_folder_of(target);
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(std::make_unique<Temporary>(path_)) {}

AtomicFile::~AtomicFile() = default;

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (!write_all(temporary_->descriptor(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}))
    fail("write to", path_, errno);
}

void AtomicFile::commit() {
  if (!temporary_->take_place_of(path_)) fail("write to", path_, errno);
  temporary_.reset();
  sync_folder_of(path_);
}

std::int64_t bytes_written() { return written_so_far; }

void remove_abandoned_files(const std::string& folder) noexcept {
  try {
    std::error_code error;
    for (const auto& entry : entries_of(folder, error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(kTemporary) || !name.ends_with(kTemporaryEnd)) continue;
      // Who may write into the folder may put anything there: neither a pipe nor a device is waited for.
      const Descriptor file(retried([&] {
        return ::open(entry.path().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
      }));
      struct stat found{};
      if (!file.open() || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
      if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
    }
  } catch (const std::exception&) {
    // What is left takes room, and nothing else.
  }
}

// A pipe is opened without a wait for who writes into it, to be refused.
OpenedFile open_file(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    throw ConfigError("cannot open '" + printable(path) + "': no name of a file has a NUL in it");
  OpenedFile file{.descriptor = FileDescriptor(retried(
                      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); }))};
  if (!file.descriptor.is_open()) fail("open", path, errno);
  struct stat about{};
  if (::fstat(file.descriptor.get(), &about) != 0) fail("read", path, errno);
  if (S_ISDIR(about.st_mode)) fail("read", path, EISDIR);
  if (!S_ISREG(about.st_mode))
    throw ConfigError("cannot read '" + path +
                      "': it is a pipe or a device (save what it gives to a file, and "
                      "name that)");
  file.bytes = about.st_size;
  return file;
}

std::string read_file(const std::string& path, std::int64_t most_bytes) {
  const OpenedFile file = open_file(path);
  const auto require_small = [&](std::int64_t bytes) {
    if (bytes > most_bytes)
      throw ConfigError("cannot read '" + path + "': it has more than the " + std::to_string(most_bytes) +
                        " bytes of any file of its kind (check that it is the right file)");
  };
  require_small(file.bytes);
  std::string content;
  std::array<char, 65536> chunk;
  while (true) {
    const ssize_t count = retried([&] { return ::read(file.descriptor.get(), chunk.data(), chunk.size()); });
    if (count < 0) fail("read", path, errno);
    if (count == 0) return content;
    content.append(chunk.data(), static_cast<std::size_t>(count));
    require_small(static_cast<std::int64_t>(content.size()));  // it may grow meanwhile
  }
}

bool exchange_names(const std::string& one, const std::string& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) fail("exchange", other, errno);
  return false;
}

}  // namespace dear::os
