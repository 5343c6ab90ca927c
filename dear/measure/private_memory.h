#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <sys/mman.h>

#include "dear/host/huge_pages.h"

namespace dear::measure {

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using PrivateMemory = std::unique_ptr<std::byte, Free>;

enum class Pages {
  usual,  // as malloc gives them
  huge    // where the kernel has some, as DeAR's buffers are (transport/shm/huge_pages.h)
};

// Memory of one process, on page boundaries and touched. bad_alloc when there is none.
inline PrivateMemory allocate_private(std::int64_t bytes, Pages pages = Pages::usual) {
  const bool huge = pages == Pages::huge && bytes >= host::kHugePageBytes;
  const auto page = static_cast<std::size_t>(huge ? host::kHugePageBytes : 4096);
  const std::size_t rounded = (static_cast<std::size_t>(bytes) + page - 1) / page * page;
  PrivateMemory memory(static_cast<std::byte*>(std::aligned_alloc(page, rounded)));
  if (!memory) {
    throw std::bad_alloc();
  }
  if (huge) madvise(memory.get(), rounded, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, rounded);
  return memory;
}

}  // namespace dear::measure
