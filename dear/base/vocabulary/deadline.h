#pragma once

#include <chrono>

namespace dear {

using SteadyClock = std::chrono::steady_clock;  // CLOCK_MONOTONIC: one clock for all processes of a host
using SteadyTime = SteadyClock::time_point;

// Seconds since the steady clock's epoch: comparable between the ranks of one host.
inline double seconds_of(SteadyTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}
// The steady clock as of the kernel's last timer tick: usually at most kTick old, at a fifth of the cost of
// reading the clock, which is as much as a small message costs.
SteadyTime recent_time();
inline constexpr std::chrono::milliseconds kTick{10};  // the longest that kernels are built with

inline double now_seconds() { return seconds_of(SteadyClock::now()); }

// The instant at which a wait gives up. Every wait of DeAR takes a deadline.
class Deadline {
 public:
  // `timeout` after `from`. A timeout beyond the range of the clock, such as an infinite one, counts as a
  // century.
  static Deadline after(std::chrono::duration<double> timeout, SteadyTime from = SteadyClock::now()) {
    static constexpr std::chrono::duration<double> kCentury = std::chrono::hours(24 * 36'525);
    return Deadline(
        from + std::chrono::duration_cast<SteadyClock::duration>(timeout < kCentury ? timeout : kCentury));
  }
  explicit Deadline(SteadyTime at) : at_(at) {}

  [[nodiscard]] SteadyTime at() const { return at_; }
  [[nodiscard]] bool expired() const { return SteadyClock::now() >= at_; }
  // Time left, never negative.
  [[nodiscard]] std::chrono::nanoseconds remaining() const {
    const auto left = at_ - SteadyClock::now();
    return left.count() > 0 ? std::chrono::duration_cast<std::chrono::nanoseconds>(left)
                            : std::chrono::nanoseconds::zero();
  }

 private:
  SteadyTime at_;
};

}  // namespace dear
