#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/archive/record.h"
#include "dear/base/os/file_descriptor.h"

namespace dear::archive {

// The records of a file that a ZipWriter or torch.save() wrote, in memory that is mapped: a record takes no
// room before it is read, and stays valid as long as a copy of the reader.
class ZipReader {
 public:
  // ConfigError, one sentence that names the file, for one that cannot be opened, is cut short, is no such
  // file, or whose directory is damaged. Trusts nothing that the file says.
  explicit ZipReader(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool has(std::string_view name) const { return records_.find(name) != records_.end(); }
  // ConfigError where it is not there.
  [[nodiscard]] std::span<const std::byte> bytes_of(std::string_view name) const;
  [[nodiscard]] std::string_view text_of(std::string_view name) const;
  // Reads the bytes into memory of that size, past the memory that is mapped. ConfigError where they are not
  // those of their checksum.
  void read(std::string_view name, std::span<std::byte> into) const;
  [[nodiscard]] std::string read_text(std::string_view name) const;
  // Whether a ZipWriter wrote it. Its seal was compared with the directory.
  [[nodiscard]] bool sealed() const { return has(kSeal); }
  // ConfigError naming the first record whose bytes are not those of its checksum. Reads all of the file.
  void verify() const;
  // Keeps the memory mapped.
  [[nodiscard]] std::shared_ptr<const void> memory() const { return memory_; }

 private:
  struct Found {
    std::span<const std::byte> bytes;
    std::uint32_t crc;
  };
  [[noreturn]] void refuse(const std::string& why) const;
  void read_directory();
  [[nodiscard]] std::span<const std::byte> data_of(const Record& record) const;
  template <typename T>
  [[nodiscard]] T number_at(std::uint64_t offset) const;

  [[nodiscard]] const Found& find(std::string_view name) const;
  [[nodiscard]] std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const;
  template <typename Room>
  void read_record(std::string_view name, const Found& found, const Room& room) const;

  std::string path_;
  std::shared_ptr<const os::FileDescriptor> descriptor_;
  std::shared_ptr<const void> memory_;
  std::span<const std::byte> file_;
  std::map<std::string, Found, std::less<>> records_;
};

}  // namespace dear::archive
