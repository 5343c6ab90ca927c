#pragma once

#include <chrono>
#include <cstdint>

#include "dear/base/vocabulary/deadline.h"

namespace dear::channels {

// How long waits of one kind take, learned from those before: near the shorter ones, as waiting too long
// costs more than one look too many.
class UsualWait {
 public:
  void learn(std::chrono::nanoseconds waited);
  [[nodiscard]] std::chrono::nanoseconds time() const { return time_; }

 private:
  std::chrono::nanoseconds time_{0};
};

// How a thread waits for what nobody wakes it for: between two looks it does nothing at first, then lets
// other threads run, then sleeps. For as long as a message may take, sleeps are short: what MPI has to do in
// between must not keep the wire waiting. From then on they are a fiftieth of the time waited, so that a long
// wait takes little of a processor. Where a wait usually is a long one, it begins with one sleep of the
// better part of that: looks at what cannot be there yet would take the processor from who computes.
class Backoff {
 public:
  static constexpr auto kSpin = std::chrono::microseconds(30);
  static constexpr auto kYield = std::chrono::microseconds(120);
  static constexpr auto kFirstSleep = std::chrono::microseconds(5);
  static constexpr auto kShortSleep = std::chrono::microseconds(100);
  static constexpr auto kLongestSleep = std::chrono::microseconds(2000);
  static constexpr auto kWorthASleep = std::chrono::microseconds(200);

  // Looks without anything between them are for ranks that have a processor each.
  enum class Processors : std::uint8_t { own, shared };
  explicit Backoff(Processors processors, std::chrono::nanoseconds usual = {})
      : processors_(processors), usual_(usual) {}
  Backoff(const Backoff&) = delete;
  Backoff& operator=(const Backoff&) = delete;
  ~Backoff();

  // Between two looks.
  void pause(Deadline deadline);
  // Whether it has come to sleeping: then there is time for dearer looks.
  [[nodiscard]] bool slept() const { return slept_; }
  [[nodiscard]] std::chrono::nanoseconds waited() const { return SteadyClock::now() - begin_; }

 private:
  void sleep(std::chrono::nanoseconds time, Deadline deadline);

  Processors processors_;
  std::chrono::nanoseconds usual_;
  SteadyTime begin_{};  // of the first pause
  bool slept_ = false;
  int slack_ = -1;  // the thread's own, while ours is in force
};

}  // namespace dear::channels
