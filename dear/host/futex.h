#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <climits>

// Sleeping on a word of memory that processes share.
namespace dear::host {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// While the word has this value, at most so long. Not the private kind: processes share the word. Returns
// early at will; the caller looks again.
inline void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value,
                     std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (at_most - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

inline void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Counted for the host: a rank that is bound to a processor of its own leaves the others theirs.
inline bool enough_processors_for(int ranks) { return get_nprocs() >= ranks; }

}  // namespace dear::host
