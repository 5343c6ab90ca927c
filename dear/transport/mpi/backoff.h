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
  static constexpr auto kFirstSleep = std::chrono::microseconds(5);
  static constexpr auto kShortSleep = std::chrono::microseconds(100);
  static constexpr auto kLongestSleep = std::chrono::microseconds(2000);

  // Looks without anything between them are for ranks that have a processor each.
  enum class Processors : std::uint8_t { own, shared };
  explicit Backoff(Processors processors) : spins_(processors == Processors::own ? kSpins : 0) {}
  Backoff(const Backoff&) = delete;
  Backoff& operator=(const Backoff&) = delete;
  ~Backoff();

  // Between two looks.
  void pause(Deadline deadline);
  // Something moved.
  void restart();
  // Whether it has come to sleeping: then there is time for dearer looks.
  [[nodiscard]] bool slept() const { return since_ != SteadyTime{}; }

 private:
  static constexpr int kSpins = 300;
  static constexpr int kYields = 300;
  int spins_;
  int pauses_ = 0;
  SteadyTime since_{};  // the first sleep of this wait; the epoch before it
  int slack_ = -1;      // the thread's own, while ours is in force
};

}  // namespace dear::transport
