#include "dear/comm/group/private_region.h"

#include <cerrno>
#include <sys/mman.h>

#include <fmt/format.h>

#include "dear/base/os/huge_pages.h"
#include "dear/base/os/memory.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"

namespace dear::comm {
namespace {

// A PrivateRegion is mapped rather than taken from the heap: it is page-aligned, and zeroed without a write.
struct PrivateRegion : Buffer::Region {
  explicit PrivateRegion(std::int64_t size) {
    bytes = size;
    if (size == 0) {
      return;
    }
    os::require_memory(size, "a buffer");
    void* memory = os::map_for_huge_pages(-1, size);
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

}  // namespace dear::comm
