#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>

#include "dear/comm/group/group.h"

namespace dear {

// Makes a signal, which a launcher or a batch system sends before it kills, an orderly end: all ranks leave
// their loop after the same step, although the signal may reach one of them alone.
//
//   dear::StopOnSignal stop(group);
//   while (step < steps && !stop.requested()) { ...; dp.step(); ++step; }
//   checkpoints.save({.step = step});
//
// Every rank makes one, and calls requested() after as many steps. About once a second the ranks tell each
// other, in a small all-gather of a group of its own, whether a signal has come; in the calls between they
// tell each other nothing. A second signal ends the process.
class StopOnSignal {
 public:
  struct Options {
    int signal = SIGTERM;
    int also = 0;  // a second one that counts alike, such as SIGINT; 0 for none
    std::chrono::duration<double> interval = std::chrono::seconds(1);  // between two exchanges, about
  };
  // Takes the signal from whoever has it now, until it is destroyed. ConfigError where another object of this
  // process waits for another signal.
  explicit StopOnSignal(const Group& group) : StopOnSignal(group, Options()) {}
  StopOnSignal(const Group& group, Options options);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  // Returns the same on every rank at the same call. Once true, it stays so.
  [[nodiscard]] bool requested();
  // The signal for which requested() is true, the same on every rank; 0 for none.
  [[nodiscard]] int signal() const { return stopped_; }
  // Acts as if the signal had come to this rank.
  void request() { asked_ = true; }

 private:
  const Group group_;
  const Options options_;
  std::atomic<bool> asked_{false};
  int stopped_ = 0;  // by this signal
  std::int64_t calls_ = 0, next_ = 1;
  double last_ = 0;              // the last exchange
  double exchange_seconds_ = 0;  // of the fastest one
};

}  // namespace dear
