#include "tests/fuzz/targets/turns.h"

#include <cstdint>
#include <ctime>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dear::fuzz {
namespace {

Turns* waited_for = nullptr;
std::int64_t skipped_ms = 0;

int poll_now(pollfd* entries, nfds_t count) {
  timespec none{};
  return ::ppoll(entries, count, &none, nullptr);
}

}  // namespace

WhileWaiting::WhileWaiting(Turns& others) { waited_for = &others; }
WhileWaiting::~WhileWaiting() {
  waited_for = nullptr;
  skipped_ms = 0;
}

}  // namespace dear::fuzz

// These stand before the C library's.
extern "C" {

int poll(pollfd* entries, nfds_t count, int timeout) {
  using namespace dear::fuzz;
  if (waited_for == nullptr) {
    const timespec time{.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1'000'000L};
    return ::ppoll(entries, count, timeout < 0 ? nullptr : &time, nullptr);
  }
  int ready = poll_now(entries, count);
  if (ready != 0) return ready;
  waited_for->go_on();
  ready = poll_now(entries, count);
  if (ready == 0) skipped_ms += timeout;
  return ready;
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (clock != CLOCK_MONOTONIC || result != 0) return result;
  const std::int64_t nanoseconds = time->tv_nsec + dear::fuzz::skipped_ms % 1000 * 1'000'000;
  time->tv_sec += dear::fuzz::skipped_ms / 1000 + nanoseconds / 1'000'000'000;
  time->tv_nsec = nanoseconds % 1'000'000'000;
  return result;
}

}  // extern "C"
