#include "tests/fuzz/targets/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include "dear/base/os/file_descriptor.h"

namespace dear::fuzz {

std::string memory_file(std::string_view bytes) {
  static os::FileDescriptor file;
  file = os::FileDescriptor(::memfd_create("fuzzed", MFD_CLOEXEC));
  std::string path = "/proc/self/fd/" + std::to_string(file.get());
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.get(), bytes.data(), bytes.size());
    if (count <= 0) break;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return path;
}

}  // namespace dear::fuzz
