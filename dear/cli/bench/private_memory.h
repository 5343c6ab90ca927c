#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace dear::cli::bench {

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using PrivateMemory = std::unique_ptr<std::byte, Free>;

// Memory of one process, on page boundaries and touched. bad_alloc when there is none.
inline PrivateMemory allocate_private(std::int64_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t rounded = (static_cast<std::size_t>(bytes) + kPage - 1) / kPage * kPage;
  PrivateMemory memory(static_cast<std::byte*>(std::aligned_alloc(kPage, rounded)));
  if (!memory) {
    throw std::bad_alloc();
  }
  std::memset(memory.get(), 0, rounded);
  return memory;
}

}  // namespace dear::cli::bench
