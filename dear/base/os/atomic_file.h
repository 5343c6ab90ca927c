#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dear/base/os/file_descriptor.h"

// Whole files, read and written in one call. Every ConfigError names the file, the system's reason and a
// remedy.
namespace dear::os {

// Replaces the file at `path` by one with this content. A reader sees the old file or the new one and never a
// part of it, even when this process dies: the content goes to a temporary file beside the target, which is
// renamed when it is complete. A failure leaves the target as it was and no temporary file. A symbolic link
// stays one; an existing file keeps its permissions. A target that cannot be replaced (a pipe, a terminal,
// /dev/stdout) is written to directly.
void write_file_atomically(const std::string& path, std::string_view content);

// AtomicFile is a regular file that is written piece by piece: it takes its place at commit(), once it is on
// the disk. Without commit() nothing is left of it.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(std::span<const std::byte> bytes);
  void commit();  // nothing may follow

 private:
  class Temporary;
  friend void write_file_atomically(const std::string& path, std::string_view content);
  std::string path_;
  std::unique_ptr<Temporary> temporary_;
};

// Gives two files or folders of one folder each other's name, at once. False where the file system cannot.
// ConfigError for what goes wrong otherwise.
[[nodiscard]] bool exchange_names(const std::string& one, const std::string& other);

// Removes the temporary files of processes that were killed while they wrote a file into this folder, of any
// host that shares it. Those of processes that live stay. Does what it can, without an error.
void remove_abandoned_files(const std::string& folder) noexcept;

// A regular file, to read. ConfigError for anything else, such as a pipe or a device, which may have no end.
struct OpenedFile {
  FileDescriptor descriptor;
  std::int64_t bytes = 0;
};
OpenedFile open_file(const std::string& path);

// All bytes of such a file. ConfigError, too, for one of more than `most_bytes`.
inline constexpr std::int64_t kMostFileBytes = std::int64_t{256} << 20;
std::string read_file(const std::string& path, std::int64_t most_bytes = kMostFileBytes);

}  // namespace dear::os
