#pragma once

#include <cstdint>

namespace dear::os {

// Size of a cache line. Data that different ranks or threads write should not share one.
inline constexpr std::int64_t kCacheLineBytes = 64;

// Rounded up to whole cache lines.
inline constexpr std::int64_t whole_cache_lines(std::int64_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace dear::os
