#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/archive/record.h"
#include "dear/base/os/atomic_file.h"

namespace dear::archive {

// Writes a file of named records in the form of torch.save(): a ZIP file whose records lie uncompressed in
// the folder "archive" and begin at multiples of 64 bytes. Each record has its CRC-32; the last one, kSeal,
// is a digest of the names, sizes and checksums of all others. The file appears under its name when it is
// whole and on the disk.
class ZipWriter {
 public:
  // ConfigError, here and from the other methods, that names the file, the system's reason and a remedy.
  explicit ZipWriter(const std::string& path);
  // `name` is new, and has no folder: "data.pkl", "data/0".
  void add(std::string_view name, std::span<const std::byte> bytes);
  void add(std::string_view name, std::string_view bytes);
  void finish();  // nothing may follow
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(offset_); }

 private:
  void write(std::string_view bytes);
  void write_directory();

  os::AtomicFile file_;
  std::uint64_t offset_ = 0;
  std::vector<Record> records_;
};

}  // namespace dear::archive
