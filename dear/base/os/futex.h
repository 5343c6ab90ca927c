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

// Functions that sleep on a word of memory that processes share, and wake its sleepers.
namespace dear::os {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Sleeps while the word has this value, at most so long. The futex is not of the private kind, since
// processes share the word. May return early; the caller looks again.
inline void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value,
                     std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (at_most - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

inline void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Whether the host has a processor for each rank. All of its processors count: a rank that is bound to one of
// them leaves the others to its peers.
inline bool enough_processors_for(int ranks) { return get_nprocs() >= ranks; }

}  // namespace dear::os
