#pragma once

#include <cstddef>
#include <cstdint>

// Memory in pages of 2 MiB: a processor that walks through megabytes then looks up a page a five-hundredth as
// often. Where the kernel has none to give, everything is as without, but slower.
namespace dear::os {

inline constexpr std::int64_t kHugePageBytes = std::int64_t{2} << 20;

// mmap() of a shared file, or of private memory for file -1, at an address where huge pages can begin if
// there is room for one and address space to choose from. MAP_FAILED with errno, as from mmap().
void* map_for_huge_pages(int file, std::int64_t bytes);

// Gathers the whole huge pages of a shared file that is mapped so, but not filled yet: they are zero
// afterwards, and all who map the file have them. False where the kernel has none for it.
bool make_huge_pages(int file, std::byte* data, std::int64_t bytes);

}  // namespace dear::os
