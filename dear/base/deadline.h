#pragma once

#include <chrono>

namespace dear {

using SteadyClock = std::chrono::steady_clock;  // CLOCK_MONOTONIC: one clock for all processes of a host
using SteadyTime = SteadyClock::time_point;

// Seconds since the steady clock's epoch: comparable between the ranks of one host.
inline double seconds_of(SteadyTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}
// The same clock as it was when the kernel last looked at it, usually at most a tick of it ago: a fifth of
// the cost, where a small message costs as much as reading the clock does.
SteadyTime recent_time();
inline constexpr std::chrono::milliseconds kTick{10};  // the longest that kernels are built with

inline double now_seconds() { return seconds_of(SteadyClock::now()); }

// The instant after which a wait gives up. A value; every wait of DeAR takes one.
class Deadline {
 public:
  // A timeout that the clock cannot count to, such as an infinite one, is taken as a century.
  static Deadline after(std::chrono::duration<double> timeout, SteadyTime from = SteadyClock::now()) {
    static constexpr std::chrono::duration<double> kCentury = std::chrono::hours(24 * 36'525);
    return Deadline(
        from + std::chrono::duration_cast<SteadyClock::duration>(timeout < kCentury ? timeout : kCentury));
  }
  explicit Deadline(SteadyTime at) : at_(at) {}

  [[nodiscard]] SteadyTime at() const { return at_; }
  [[nodiscard]] bool expired() const { return SteadyClock::now() >= at_; }
  // Never negative.
  [[nodiscard]] std::chrono::nanoseconds remaining() const {
    const auto left = at_ - SteadyClock::now();
    return left.count() > 0 ? std::chrono::duration_cast<std::chrono::nanoseconds>(left)
                            : std::chrono::nanoseconds::zero();
  }

 private:
  SteadyTime at_;
};

}  // namespace dear
