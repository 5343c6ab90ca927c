#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <queue>
#include <vector>

#include "dear/schedule/conductor/drive.h"

namespace dear {

// The clock of a replay, on the steady clock. Some steps end at a time that is known beforehand, others when
// an executor reports it. now_seconds() is the latest end that next() returned: when a step was due, not when
// the caller woke.
//
// Threads: begin(), end_at(), next() and now_seconds() are for the thread that drives the replay, the other
// methods for any.
class RealTime final : public conductor::Completions {
 public:
  RealTime();
  ~RealTime() override;
  RealTime(const RealTime&) = delete;
  RealTime& operator=(const RealTime&) = delete;

  void begin();  // sets now_seconds() to this moment
  void end_at(Instance which, double seconds);

  // Announces one call of ended(); expect_no_end() takes one announcement back.
  void expect_end();
  void expect_no_end();
  void ended(const conductor::StepEnd& end);
  void await_ends();  // waits until no more calls are announced

  // Waits without a deadline: the executors bound how long their steps take.
  conductor::Completion next() override;
  [[nodiscard]] double now_seconds() override { return now_; }

 private:
  struct Later {
    bool operator()(const conductor::Completion& a, const conductor::Completion& b) const {
      return a.at_seconds > b.at_seconds;
    }
  };
  conductor::Completion give(const conductor::Completion& completion);

  double now_ = 0;
  std::priority_queue<conductor::Completion, std::vector<conductor::Completion>, Later> due_;
  unsigned long slack_ = 0;  // of the driving thread's timers before, in nanoseconds

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<conductor::Completion> told_;
  std::size_t expected_ = 0;
  std::exception_ptr failure_;
};

}  // namespace dear
