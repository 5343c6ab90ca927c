#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/archive/record.h"
#include "dear/base/os/file_descriptor.h"

namespace dear::archive {

// The records of a file that a ZipWriter or torch.save() wrote. A record takes no room before it is read.
// The file is never mapped: whoever cuts it, or pulls its disk, while it is read causes an error here, where
// memory that is mapped would end the process.
class ZipReader {
 public:
  // ConfigError, one sentence that names the file, for one that cannot be opened, is cut short, is no such
  // file, or whose directory is damaged. Trusts nothing that the file says.
  explicit ZipReader(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool has(std::string_view name) const { return records_.find(name) != records_.end(); }
  // Where a record lies in the file. ConfigError where it is not there.
  struct Extent {
    std::uint64_t begin = 0;
    std::size_t size = 0;
  };
  [[nodiscard]] Extent extent_of(std::string_view name) const { return find(name).extent; }
  // Reads the bytes into memory of that size. ConfigError where they are not those of their checksum.
  void read(std::string_view name, std::span<std::byte> into) const;
  // Reads those that begin `offset` bytes into the record; no checksum tells of a part.
  void read_part(std::string_view name, std::size_t offset, std::span<std::byte> into) const;
  [[nodiscard]] std::string read_text(std::string_view name) const;
  // Whether a ZipWriter wrote it. Its seal was compared with the directory.
  [[nodiscard]] bool sealed() const { return has(kSeal); }
  // ConfigError naming the first record whose bytes are not those of its checksum. Reads all of the file.
  void verify() const;

 private:
  struct Found {
    Extent extent;
    std::uint32_t crc;
  };
  [[noreturn]] void refuse(const std::string& why) const;
  void read_directory();
  [[nodiscard]] Extent extent_of(const Record& record) const;
  // Reads a number of the directory, or of the records before and behind it.
  template <typename T>
  [[nodiscard]] T number_at(std::uint64_t offset) const;
  void read_whole(std::uint64_t offset, std::span<std::byte> into) const;

  [[nodiscard]] const Found& find(std::string_view name) const;
  [[nodiscard]] std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const;
  template <typename Room>
  void read_record(std::string_view name, const Found& found, const Room& room) const;

  std::string path_;
  std::shared_ptr<const os::FileDescriptor> descriptor_;
  std::uint64_t file_bytes_ = 0;
  std::vector<std::byte> directory_;  // while it is read
  std::uint64_t directory_begin_ = 0;
  std::map<std::string, Found, std::less<>> records_;
};

}  // namespace dear::archive
