#include "dear/comm/shm/copy.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <unistd.h>

#if defined(__SSE2__)
#include <emmintrin.h>

#include "dear/base/os/cache_line.h"
#endif

namespace dear::backends {
namespace {

// The size of a processor's last cache, as the kernel tells. The C library is asked only where the kernel
// does not tell: it was seen to add up the caches of a whole machine, ten times what one core can use.
std::int64_t cache_bytes() {
  std::int64_t last = 0;
  for (int index = 0;; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::int64_t kibibytes = 0;
    if (!(file >> kibibytes)) break;
    last = std::max(last, kibibytes * 1024);
  }
  if (last > 0) return last;
  constexpr std::int64_t kUnknown = 8 << 20;
  const std::int64_t told = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return told > 0 ? told : kUnknown;
}

#if defined(__SSE2__)
constexpr std::int64_t kLong = 64 * 1024;
// How far ahead of streamed stores the source is prefetched. A prefetch beyond the end reads nothing.
constexpr std::int64_t kAhead = 16 * os::kCacheLineBytes;

// One thread's loads and stores move lines as fast in pieces of 16 bytes as in longer ones.
template <Stores stores>
void store(__m128i* to, __m128i value) {
  stores == Stores::streamed ? _mm_stream_si128(to, value) : _mm_store_si128(to, value);
}

template <Stores stores>
void copy_lines(std::byte* to, const std::byte* from, std::int64_t bytes) {
  const std::int64_t head = std::min(
      bytes, (os::kCacheLineBytes -
              static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % os::kCacheLineBytes)) %
                 os::kCacheLineBytes);
  std::memcpy(to, from, static_cast<std::size_t>(head));
  std::int64_t at = head;
  for (; at + os::kCacheLineBytes <= bytes; at += os::kCacheLineBytes) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    if constexpr (stores == Stores::streamed)
      __builtin_prefetch(from + at + kAhead, 0, 0);  // to read, and not again
    const __m128i first = _mm_loadu_si128(source);
    const __m128i second = _mm_loadu_si128(source + 1);
    const __m128i third = _mm_loadu_si128(source + 2);
    const __m128i fourth = _mm_loadu_si128(source + 3);
    store<stores>(target, first);
    store<stores>(target + 1, second);
    store<stores>(target + 2, third);
    store<stores>(target + 3, fourth);
  }
  if constexpr (stores == Stores::streamed) _mm_sfence();  // a release does not order such stores by itself
  std::memcpy(to + at, from + at, static_cast<std::size_t>(bytes - at));
}
#endif

}  // namespace

Stores stores_for(std::int64_t bytes) {
  static const std::int64_t kCache = cache_bytes();
  return bytes >= kCache ? Stores::streamed : Stores::cached;
}

void copy(std::byte* to, const std::byte* from, std::int64_t bytes, Stores stores) {
  if (bytes <= 0) {
    return;
  }
#if defined(__SSE2__)
  if (stores == Stores::streamed) return copy_lines<Stores::streamed>(to, from, bytes);
  // From some size on memcpy uses streamed stores by itself, and it finds this size too low where it sees a
  // part of the machine only. What a peer reads next would then lie in memory, not in a cache.
  if (bytes >= kLong) return copy_lines<Stores::cached>(to, from, bytes);
#else
  static_cast<void>(stores);
#endif
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace dear::backends
