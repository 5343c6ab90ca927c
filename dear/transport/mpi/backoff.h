#pragma once

#include <chrono>
#include <cstdint>

#include "dear/base/deadline.h"

namespace dear::transport {

// How a thread waits for what nobody wakes it for: between two looks it does nothing at first, then lets
// other threads run, then sleeps. For as long as a message may take, sleeps are short: what MPI has to do in
// between must not keep the wire waiting. From then on they are a fiftieth of the time waited, so that a long
// wait takes little of a processor.
class Backoff {
 public:
  static constexpr auto kSpin = std::chrono::microseconds(30);
  static constexpr auto kYield = std::chrono::microseconds(120);
  static constexpr auto kFirstSleep = std::chrono::microseconds(5);
  static constexpr auto kFirstSleepAtOnce = std::chrono::microseconds(20);
  static constexpr auto kShortSleep = std::chrono::microseconds(100);
  static constexpr auto kLongestSleep = std::chrono::microseconds(2000);

  // Looks without anything between them are for ranks that have a processor each.
  enum class Processors : std::uint8_t { own, shared };
  // What a thread learns from its waits: where several in a row have come to sleeping, as on a slow wire, the
  // next sleeps at once and leaves its processor to those that have work, in the kernel's network too.
  class Habit {
   public:
    [[nodiscard]] bool sleeps_at_once() const { return long_waits_ >= kLongWaits; }
    void learn(std::chrono::nanoseconds waited) { long_waits_ = waited < kShort ? 0 : long_waits_ + 1; }

   private:
    static constexpr int kLongWaits = 4;
    static constexpr auto kShort = std::chrono::microseconds(40);
    int long_waits_ = 0;
  };

  Backoff(Processors processors, Habit& habit) : processors_(processors), habit_(habit) {}
  Backoff(const Backoff&) = delete;
  Backoff& operator=(const Backoff&) = delete;
  ~Backoff();

  // Between two looks.
  void pause(Deadline deadline);
  // Whether it has come to sleeping: then there is time for dearer looks.
  [[nodiscard]] bool slept() const { return slept_; }

 private:
  Processors processors_;
  Habit& habit_;
  SteadyTime begin_{};  // of the first pause
  bool slept_ = false;
  int slack_ = -1;  // the thread's own, while ours is in force
};

}  // namespace dear::transport
