#include "dear/train/streams/stream_clock.h"

#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"

namespace dear::streams {

StreamClock::Mark StreamClock::mark() {
  const std::lock_guard lock(mutex_);
  Point& point = points_.emplace_back();
  if (device_.is_cpu()) {
    point.host_seconds = now_seconds();
  } else {
    point.event.emplace(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // which takes times
    point.event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  return first_ + static_cast<Mark>(points_.size()) - 1;
}

const StreamClock::Point& StreamClock::at(Mark mark) const {
  if (mark < first_ || mark >= first_ + static_cast<Mark>(points_.size()))
    throw Error("a point of the device's time was asked for that is not kept: please report this");
  return points_[static_cast<std::size_t>(mark - first_)];
}

bool StreamClock::reached(Mark mark) const {
  const std::lock_guard lock(mutex_);
  const Point& point = at(mark);
  return !point.event || point.event->query();
}

double StreamClock::seconds(Mark from, Mark to) const {
  const std::lock_guard lock(mutex_);
  const Point &begin = at(from), &end = at(to);
  if (!begin.event) return end.host_seconds - begin.host_seconds;
  return begin.event->elapsedTime(*end.event) / 1e3;  // of milliseconds
}

void StreamClock::forget_before(Mark mark) {
  const std::lock_guard lock(mutex_);
  while (first_ < mark && !points_.empty()) {
    points_.pop_front();
    ++first_;
  }
}

void StepTimes::step_ended() {
  const bool pause = std::exchange(paused_, false);
  const bool disturbed = pause && !paused_before_;
  paused_before_ = pause;
  ends_.push_back({clock_.mark(), !std::exchange(begins_anew_, false) && !disturbed});
}

void StepTimes::interrupted() {
  for (End& end : ends_) end.counts = false;
  begins_anew_ = true;
}

std::vector<double> StepTimes::take() {
  std::vector<double> seconds;
  while (ends_.size() > 1 && clock_.reached(ends_[1].mark)) {
    if (ends_[1].counts) seconds.push_back(clock_.seconds(ends_[0].mark, ends_[1].mark));
    ends_.pop_front();
  }
  if (!ends_.empty()) clock_.forget_before(ends_.front().mark);
  return seconds;
}

}  // namespace dear::streams
