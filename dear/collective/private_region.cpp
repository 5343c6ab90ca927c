#include "dear/collective/private_region.h"

#include <cerrno>
#include <sys/mman.h>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/host/huge_pages.h"
#include "dear/host/memory.h"

namespace dear::collective {
namespace {

// A PrivateRegion is mapped rather than taken from the heap: it is page-aligned, and zeroed without a write.
struct PrivateRegion : Buffer::Region {
  explicit PrivateRegion(std::int64_t size) {
    bytes = size;
    if (size == 0) {
      return;
    }
    host::require_memory(size, "a buffer");
    void* memory = host::map_for_huge_pages(-1, size);
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
