#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "dear/base/os/file_descriptor.h"

namespace dear::os {

// A Segment is zeroed memory that several processes map. It has no name in any file system and goes with its
// last mapping.
class Segment {
 public:
  // TransportError naming the size and the remedy when the memory cannot be had. All of it is there
  // afterwards: a touch cannot fail any more. `purpose` as in require_memory.
  static std::shared_ptr<Segment> create(std::int64_t bytes, const std::string& purpose);
  // Maps what another process created; the file is closed.
  static std::shared_ptr<Segment> map(FileDescriptor file, std::int64_t bytes);

  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  // The file to hand to another process, until close_file(); the mapping does not need it.
  [[nodiscard]] int file() const { return file_.get(); }
  void close_file() { file_.close(); }

 private:
  Segment(FileDescriptor file, std::int64_t bytes);

  FileDescriptor file_;
  std::int64_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace dear::os
