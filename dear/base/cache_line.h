#pragma once

#include <cstdint>

namespace dear {

// Bytes that caches take at a time: what different ranks or threads write lies in lines of its own.
inline constexpr std::int64_t kCacheLineBytes = 64;

inline constexpr std::int64_t whole_cache_lines(std::int64_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace dear
