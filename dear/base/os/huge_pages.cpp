#include "dear/base/os/huge_pages.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace dear::os {
namespace {

// The flag exists in Linux since 6.1; C libraries learn of it later.
#if defined(MADV_COLLAPSE)
constexpr int kCollapse = MADV_COLLAPSE;
#else
constexpr int kCollapse = 25;
#endif

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

void* map_for_huge_pages(int file, std::int64_t bytes) {
  constexpr int kRights = PROT_READ | PROT_WRITE;
  const int flags = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  if (bytes < kHugePageBytes) return mmap(nullptr, size(bytes), kRights, flags, file, 0);
  // Maps more than is needed, and gives the beginning and the end back.
  const std::int64_t reserved = bytes + kHugePageBytes;
  void* const room =
      mmap(nullptr, size(reserved), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return mmap(nullptr, size(bytes), kRights, flags, file, 0);
  auto* const begin = static_cast<std::byte*>(room);
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) % kHugePageBytes);
  const std::int64_t before = past == 0 ? 0 : kHugePageBytes - past;
  void* const memory = mmap(begin + before, size(bytes), kRights, flags | MAP_FIXED, file, 0);
  if (memory == MAP_FAILED) {
    const int why = errno;
    munmap(room, size(reserved));
    errno = why;
    return MAP_FAILED;
  }
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const std::int64_t end = before + (bytes + page - 1) / page * page;
  if (before > 0) munmap(begin, size(before));
  if (end < reserved) munmap(begin + end, size(reserved - end));
  if (file < 0) madvise(memory, size(bytes / kHugePageBytes * kHugePageBytes), MADV_HUGEPAGE);
  return memory;
}

// The kernel does not begin huge pages of shared memory by itself unless it was configured to, but gathers
// pages that are there, of which one is enough.
bool make_huge_pages(int file, std::byte* data, std::int64_t bytes) {
  const std::int64_t whole = bytes / kHugePageBytes * kHugePageBytes;
  for (std::int64_t begin = 0; begin < whole; begin += kHugePageBytes)
    if (fallocate(file, 0, begin, 1) != 0) return false;
  return whole > 0 && madvise(data, size(whole), kCollapse) == 0;
}

}  // namespace dear::os
