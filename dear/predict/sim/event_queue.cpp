#include "dear/predict/sim/event_queue.h"

#include "dear/base/vocabulary/error.h"

namespace dear::sim {

void EventQueue::end_after(double seconds, Instance which) {
  events_.push({{which, now_ + seconds}, added_++});
}

conductor::Completion EventQueue::next() {
  if (events_.empty())
    throw Error("the simulation waits for a step to end, but none is running: start one before waiting");
  const conductor::Completion completion = events_.top().completion;
  events_.pop();
  now_ = completion.at_seconds;
  return completion;
}

bool EventQueue::Later::operator()(const Event& a, const Event& b) const {
  if (a.completion.at_seconds != b.completion.at_seconds)
    return a.completion.at_seconds > b.completion.at_seconds;
  return a.number > b.number;
}

}  // namespace dear::sim
