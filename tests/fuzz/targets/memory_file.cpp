#include "tests/fuzz/targets/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include "dear/base/os/file_descriptor.h"

namespace dear::fuzz {

std::string memory_file(std::string_view bytes) {
  static const os::FileDescriptor kFile(::memfd_create("fuzzed", MFD_CLOEXEC));
  static_cast<void>(!::ftruncate(kFile.get(), 0));
  for (off_t place = 0; !bytes.empty();) {
    const ssize_t count = ::pwrite(kFile.get(), bytes.data(), bytes.size(), place);
    if (count <= 0) break;
    bytes.remove_prefix(static_cast<std::size_t>(count));
    place += count;
  }
  return "/proc/self/fd/" + std::to_string(kFile.get());
}

}  // namespace dear::fuzz
