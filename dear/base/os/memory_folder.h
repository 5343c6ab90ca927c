#pragma once

#include <string>

#include "dear/base/os/file_descriptor.h"

namespace dear::os {

// A folder of files that lie in this host's memory (/dev/shm), for this user alone; it goes with this object,
// and what is in it. One that a killed process left behind is removed when the next one is made.
class MemoryFolder {
 public:
  MemoryFolder();  // TransportError where there is no such memory
  ~MemoryFolder();
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  FileDescriptor lock_;  // on the folder, as long as this process lives
};

}  // namespace dear::os
