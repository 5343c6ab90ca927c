#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "dear/schedule/conductor/drive.h"

namespace dear::sim {

// The clock of a simulation: time passes only from one end to the next. Ends at one instant come in the order
// in which they were added, so a simulation always runs the same.
class EventQueue final : public conductor::Completions {
 public:
  // `which` ends `seconds` from now.
  void end_after(double seconds, Instance which);

  conductor::Completion next() override;  // Error when nothing is running
  [[nodiscard]] double now_seconds() override { return now_; }

 private:
  struct Event {
    conductor::Completion completion;
    std::uint64_t number;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const;
  };
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint64_t added_ = 0;
  double now_ = 0;
};

// An executor on which every step takes the time foreseen for it, and steps do not hinder each other: lanes
// keep them apart.
class VirtualExecutor final : public conductor::LaneExecutor {
 public:
  // `seconds` by StepId. Both must outlive the executor.
  VirtualExecutor(const std::vector<double>& seconds, EventQueue& events)
      : seconds_(seconds), events_(events) {}

  conductor::Started start(Instance which, const Step&) override {
    events_.end_after(seconds_.at(which.step), which);
    return conductor::Started::under_way;
  }

 private:
  const std::vector<double>& seconds_;
  EventQueue& events_;
};

}  // namespace dear::sim
