#include "dear/collective/private_region.h"

#include <cerrno>
#include <sys/mman.h>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/transport/shm/memory.h"

namespace dear::collective {
namespace {

// Mapped rather than taken from the heap: page-aligned and zeroed without a write.
struct PrivateRegion : Buffer::Region {
  explicit PrivateRegion(std::int64_t size) {
    bytes = size;
    if (size == 0) {
      return;
    }
    transport::require_memory(size, "a buffer");
    void* memory = mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw TransportError(
          with_errno(fmt::format("cannot allocate {} for a buffer (use a smaller model or more memory)",
                                 format_bytes(size)),
                     errno));
    }
    data = static_cast<std::byte*>(memory);
  }
  PrivateRegion(const PrivateRegion&) = delete;
  PrivateRegion& operator=(const PrivateRegion&) = delete;
  ~PrivateRegion() override {
    if (data != nullptr) {
      munmap(data, static_cast<std::size_t>(bytes));
    }
  }
};

}  // namespace

Buffer allocate_private(std::int64_t bytes) {
  if (bytes < 0) {
    throw ConfigError(fmt::format("cannot allocate a buffer of {} bytes: the size is negative", bytes));
  }
  return Buffer(std::make_shared<PrivateRegion>(bytes));
}

}  // namespace dear::collective
