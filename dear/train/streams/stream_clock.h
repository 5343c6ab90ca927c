#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

namespace dear::streams {

// Says how long a device takes from one point of a program to another, by events that it records: marks. On
// the CPU, which has no events, a mark is the time of the call. Any method may be called on any thread.
class StreamClock {
 public:
  using Mark = std::int64_t;  // numbered from 0
  explicit StreamClock(c10::Device device) : device_(device) {}

  // Notes the point that the current stream has come to.
  Mark mark();
  // Whether the device has come there. The host does not wait.
  [[nodiscard]] bool reached(Mark mark) const;
  // The seconds from one mark to a later one. Both are reached.
  [[nodiscard]] double seconds(Mark from, Mark to) const;
  // Marks before this one are of no use any more.
  void forget_before(Mark mark);

 private:
  struct Point {
    std::optional<c10::Event> event;  // none on the CPU
    double host_seconds = 0;
  };
  [[nodiscard]] const Point& at(Mark mark) const;  // under the lock

  const c10::Device device_;
  mutable std::mutex mutex_;
  Mark first_ = 0;
  std::deque<Point> points_;
};

// How long the steps of a program took on a device, each from the mark at the end of the step before to its
// own. A device comes to them later than the host, which does not wait: they are known some steps later. For
// the program's thread.
class StepTimes {
 public:
  explicit StepTimes(c10::Device device) : clock_(device) {}

  void step_ended();
  // The program paused between the last step and the next, or buckets were changed there: that time is no
  // step's. A program that pauses before each step is measured with its pauses. A change of buckets also
  // drops the steps before it that were not taken yet.
  void paused() { paused_ = true; }
  void interrupted();
  // Seconds of the steps that the device has ended, oldest first, of which it was not asked before.
  [[nodiscard]] std::vector<double> take();

 private:
  struct End {
    StreamClock::Mark mark;
    bool counts;  // as the end of a step that began at the mark before
  };
  StreamClock clock_;
  std::deque<End> ends_;
  bool paused_ = false, paused_before_ = false, begins_anew_ = true;
};

}  // namespace dear::streams
