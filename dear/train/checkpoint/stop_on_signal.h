#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>

#include "dear/comm/group/group.h"

namespace dear {

// Makes a signal, which a launcher or a batch system sends before it kills, an orderly end: all ranks leave
// their loop after the same step, although the signal may reach one of them alone.
//
//   dear::StopOnSignal stop(group);
//   while (step < steps && !stop.requested()) { ...; dp.step(); ++step; }
//   checkpoints.save({.step = step});
//
// Every rank makes one, and calls requested() after as many steps. A thread of its own asks the other ranks,
// every `interval`, on a group of its own, whether a signal has come; so how long steps take does not matter.
// Where one has come the ranks tell each other how far they are, and all stop after the first step that none
// has ended: a call of requested() meanwhile waits for that. A second signal ends the process.
class StopOnSignal {
 public:
  struct Options {
    int signal = SIGTERM;
    int also = 0;  // a second one that counts alike, such as SIGINT; 0 for none
    std::chrono::duration<double> interval = std::chrono::milliseconds(500);
    std::string file{};  // counts as the signal as soon as it is there, on any rank; "" for none
  };
  // Takes the signal from whoever has it now, until it is destroyed. ConfigError where another object of this
  // process waits for another signal.
  explicit StopOnSignal(const Group& group) : StopOnSignal(group, Options()) {}
  StopOnSignal(const Group& group, Options options);
  // Waits for the next exchange, for up to the interval. Ranks that go on hear of no signal any more.
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  // Returns the same on every rank at the same call. Once true, it stays so. Throws what an exchange failed
  // with.
  [[nodiscard]] bool requested();
  // Whether this rank knows of a signal, before all do: for a loop without collectives, as an evaluation of a
  // rank by itself.
  [[nodiscard]] bool comes() const { return own_signal() != 0 || heard_ != 0; }
  // The signal for which requested() is true, the same on every rank; 0 for none.
  [[nodiscard]] int signal() const { return stopped_; }
  // Acts as if the signal had come to this rank.
  void request() { asked_ = true; }

 private:
  [[nodiscard]] int own_signal() const;
  void exchange();
  void agree_on_the_step(int signal);

  const Group group_;
  const Options options_;
  const pid_t process_ = ::getpid();
  std::atomic<bool> asked_{false};
  std::atomic<int> heard_{0};  // the signal of any rank
  int stopped_ = 0;            // by this signal

  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t calls_ = 0;              // of requested()
  std::optional<std::int64_t> last_{};  // the call that returns true
  bool held_ = false;                   // calls wait until the last one is known
  bool leaves_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // none for one rank
};

}  // namespace dear
