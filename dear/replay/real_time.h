#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <queue>
#include <vector>

#include "dear/exec/drive.h"

namespace dear {

// The clock of a replay: the steady one. Some steps end when it is time, others when it is told so. Its now
// is the latest end that it gave out: what was due when, not when its caller woke.
//
// begin(), end_at(), next() and now_seconds() are for the thread that drives; the rest may come from any.
class RealTime final : public exec::Completions {
 public:
  RealTime();
  ~RealTime() override;
  RealTime(const RealTime&) = delete;
  RealTime& operator=(const RealTime&) = delete;

  void begin();  // now is this moment
  void end_at(Instance which, double seconds);

  // One ended() for each, unless taken back.
  void expect_end();
  void expect_no_end();
  void ended(const exec::StepEnd& end);
  void await_ends();  // until none is expected any more

  // Waits for as long as the steps take: those that it is told of must be bounded by who tells it.
  exec::Completion next() override;
  [[nodiscard]] double now_seconds() override { return now_; }

 private:
  struct Later {
    bool operator()(const exec::Completion& a, const exec::Completion& b) const { return a.at_seconds > b.at_seconds; }
  };
  exec::Completion give(const exec::Completion& completion);

  double now_ = 0;
  std::priority_queue<exec::Completion, std::vector<exec::Completion>, Later> due_;
  unsigned long slack_ = 0;  // of the driving thread's timers before, in nanoseconds

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<exec::Completion> told_;
  std::size_t expected_ = 0;
  std::exception_ptr failure_;
};

}  // namespace dear
